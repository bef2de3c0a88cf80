/** Similar cases, each with its picture, its sentence, and what can be done with it. */

import { fill, h } from '../shared/dom.js';
import { findingTitle, priorMark } from '../shared/terms.js';
import { dayText, numberText } from '../shared/words.js';
import { say } from './words.js';

/**
 * @typedef {import('./cases-api.js').Case} Case
 * @typedef {import('./cases-api.js').Answer} Answer
 */

const VERDICTS = /** @type {const} */ ([[true, 'case.accept'], [false, 'case.reject']]);

export class CaseList {
  /** Verdicts of this page, by the collection, the image that a case is like and the case. @type {Map<string, boolean | null>} */
  #judgements = new Map();

  /**
   * @param {{sideBySide: (answer: Answer, hit: Case) => void, address: (hit: Case) => string, picture: (hit: Case) => string,
   *   judge: (answer: Answer, hit: Case, relevant: boolean | null) => Promise<boolean>}} actions `judge` tells whether the service has kept it
   */
  constructor(actions) {
    this.actions = actions;
    this.element = h('ol', { class: 'case-list', 'aria-label': say('cases.title') });
  }

  /** @param {Answer} answer to which all acts on its cases belong @param {boolean} datesKept whether the collection has the dates of the archive */
  show(answer, datesKept) {
    fill(this.element, ...answer.cases.hits.map((hit) => this.#case(answer, hit, datesKept)));
  }

  clear() {
    fill(this.element);
  }

  /** The cases that were accepted; all that were not rejected where none was. @param {Answer} answer @returns {Case[]} */
  chosen(answer) {
    const { hits } = answer.cases;
    const accepted = hits.filter((hit) => this.#judgements.get(judgedOf(answer, hit)) === true);
    return accepted.length > 0 ? accepted : hits.filter((hit) => this.#judgements.get(judgedOf(answer, hit)) !== false);
  }

  /** @param {Answer} answer @param {Case} hit @param {boolean} datesKept */
  #case(answer, hit, datesKept) {
    const same = hit.same_patient === true;
    return h('li', { class: same ? 'case' : 'case other', data: { id: hit.id, study: hit.study ?? '' } },
      h('img', { src: this.actions.picture(hit), alt: '', loading: 'lazy', width: 96, height: 96 }),
      h('div', {},
        h('div', { class: 'case-facts' }, h('span', { class: 'case-whose' }, whose(hit)), ...factsOf(hit, datesKept).map((fact) => h('span', {}, fact))),
        hit.sentence && h('blockquote', {}, hit.sentence.text, hit.sentence.prior && ' ', hit.sentence.prior && priorMark()),
        hit.findings.present.length > 0 && h('div', { class: 'case-facts' }, hit.findings.present.map(findingTitle).join(', '))),
      h('div', { class: 'case-acts' }, this.#opening(answer, hit, same), ...this.#verdicts(answer, hit)));
  }

  /** A study of the same patient opens side by side; one of another patient never in the same tab. @param {Answer} answer @param {Case} hit @param {boolean} same */
  #opening(answer, hit, same) {
    if (same) return h('button', { class: 'button', type: 'button', on: { click: () => this.actions.sideBySide(answer, hit) } }, say('case.sideBySide'));
    return h('a', { class: 'button', href: this.actions.address(hit), target: '_blank', rel: 'noopener' }, say('case.ownTab'));
  }

  /** @param {Answer} answer @param {Case} hit */
  #verdicts(answer, hit) {
    const judged = judgedOf(answer, hit);
    const buttons = VERDICTS.map(([relevant, name]) => h('button', { class: 'button', type: 'button', 'aria-pressed': 'false',
      on: { click: () => judge(relevant) } }, say(name)));
    const press = () => buttons.forEach((button, index) => button.setAttribute('aria-pressed', String(this.#judgements.get(judged) === VERDICTS[index][0])));
    const judge = async (relevant) => {
      const before = this.#judgements.get(judged) ?? null;
      // Said twice, it is taken back.
      const now = before === relevant ? null : relevant;
      this.#judgements.set(judged, now);
      press();
      if (!await this.actions.judge(answer, hit, now)) this.#judgements.set(judged, before);
      press();
    };
    press();
    return buttons;
  }
}

/** What a verdict is on: a case and the image that it is like, in a collection. @param {Answer} answer @param {Case} hit */
function judgedOf({ cases }, hit) {
  return `${cases.collection} ${hit.query_image} ${hit.id}`;
}

/** @param {Case} hit */
function whose(hit) {
  if (hit.same_patient === null) return say('case.patientUnknown');
  return hit.same_patient ? say('case.samePatient') : say('case.otherPatient');
}

/** @param {Case} hit @param {boolean} datesKept @returns {string[]} */
function factsOf(hit, datesKept) {
  const facts = [hit.modality, hit.view, datesKept && hit.date && !hit.date_shifted ? dayText(hit.date) : null, hit.age_band, hit.sex];
  if (hit.same_patient && hit.days !== null) facts.push(daysText(hit.days));
  facts.push(numberText(hit.score, { minimumFractionDigits: 3, maximumFractionDigits: 3 }).replace('-', '\u2212'));
  return facts.filter((fact) => fact !== null);
}

/** @param {number} days */
function daysText(days) {
  if (days === 0) return say('case.sameDay');
  return say(days < 0 ? 'case.before' : 'case.after', { count: Math.abs(days) });
}

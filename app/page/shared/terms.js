/** Names that the service has in one form for all: fields, findings, states, kinds of scores; as a reader calls them. */

import { h } from './dom.js';
import { dayText, speaker } from './words.js';

const { say, term } = speaker('terms');
const OLDEST = 90;

/** @param {string} name @returns {string} the name of a field; data sets bring some of their own */
export function fieldTitle(name) {
  return term(`field.${name}`, name.replaceAll('_', ' '));
}

/** @param {string} name @returns {string} the name of a finding */
export function findingTitle(name) {
  return term(`finding.${name}`, name);
}

/** @param {'present' | 'uncertain' | 'absent'} state @returns {string} what texts say of a finding */
export function stateTitle(state) {
  return say(`state.${state}`);
}

/** @returns {HTMLElement} marks what is in a sentence that compares with an earlier examination, or mentions one */
export function priorMark() {
  return h('span', { class: 'prior-mark', title: say('prior.what') }, say('prior'));
}

/** @param {string} kind @returns {string} the name of a kind of score */
export function kindTitle(kind) {
  return term(`kind.${kind}`, kind.replaceAll('_', ' '));
}

/** @param {unknown} value @returns {string} a value of metadata */
export function valueText(value) {
  return typeof value === 'boolean' ? say(`value.${value}`) : String(value);
}

/** @param {Record<string, unknown>} metadata @returns {string | null} the day of the study, in ISO 8601 */
export function dayOf({ date }) {
  return typeof date === 'string' && /^\d{4}-\d{2}-\d{2}/.test(date) ? date.slice(0, 10) : null;
}

/** @param {Record<string, unknown>} metadata @param {ReadonlySet<string>} hidden fields that are not shown @returns {string | null} */
export function dateOf(metadata, hidden) {
  const day = dayOf(metadata);
  return day === null || hidden.has('date') ? null : marked(dayText(day), metadata);
}

/** @param {string} date @param {Record<string, unknown>} metadata @returns {string} the date, marked where de-identification has shifted it, or may have */
export function marked(date, { date_shifted: shifted, sop }) {
  const isUnknown = shifted === undefined && sop !== undefined;
  return shifted === true || isUnknown ? `${date} (${say(isUnknown ? 'date.maybeShifted' : 'date.shifted')})` : date;
}

/** @param {Record<string, unknown>} metadata @param {ReadonlySet<string>} hidden @returns {string[]} age and sex of the patient */
export function personOf({ age, sex }, hidden) {
  return [
    typeof age === 'number' && !hidden.has('age') && say('age.years', { age: age >= OLDEST ? `${OLDEST}+` : age }),
    ['M', 'F', 'O'].includes(sex) && !hidden.has('sex') && say(`sex.${sex}`),
  ].filter(Boolean);
}

/**
 * @param {Record<string, unknown>} metadata @param {ReadonlySet<string>} hidden
 * @returns {string[]} date, view and side of a film, and age and sex of its patient, where the metadata has them
 */
export function filmFacts(metadata, hidden) {
  const view = ['view', 'laterality'].filter((field) => !hidden.has(field) && typeof metadata[field] === 'string').map((field) => metadata[field]);
  return [dateOf(metadata, hidden), view.filter(Boolean).join(' '), ...personOf(metadata, hidden)].filter(Boolean);
}

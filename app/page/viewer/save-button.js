/** "Save to archive": records similar cases of the active image in its study of the archive, where the service is set to. */

import { h } from '../shared/dom.js';
import { say } from './words.js';

/**
 * @typedef {import('./cases-api.js').Answer} Answer
 * @typedef {import('./cases-api.js').Case} Case
 * @typedef {import('./cases-api.js').WriteBack} WriteBack
 * @typedef {import('./cases-api.js').Written} Written
 */

/** As many as a page of the archive shows. */
const MOST = 6;

export class SaveButton {
  /** Keys of what was sent, by its text: cases that are saved again are there once. @type {Map<string, string>} */
  #keys = new Map();
  /** What is saved: cases go to the study whose similar cases they are. @type {Answer | null} */
  #answer = null;

  /**
   * @param {{chosen: (answer: Answer) => Case[], send: (answer: Answer, body: object, key: string) => Promise<Written | null>,
   *   say: (answer: Answer, text: string) => void}} actions
   *   `chosen` gives the cases to save; `send` gives null where the service did not take them, and has shown why
   */
  constructor(actions) {
    this.actions = actions;
    this.element = h('button', { class: 'button', type: 'button', hidden: true, on: { click: () => this.#save() } }, say('save.button'));
  }

  /** Offer the cases of an image, where the service writes them. @param {Answer} answer */
  offer(answer) {
    this.#answer = answer;
    this.element.disabled = false;
    this.element.hidden = answer.image.sop === null || formsOf(answer.cases.write_back).length === 0 || this.actions.chosen(answer).length === 0;
  }

  /** Offer nothing. */
  withdraw() {
    this.#answer = null;
    this.element.hidden = true;
  }

  async #save() {
    const answer = this.#answer;
    if (answer === null) return;
    const { sop, frame } = answer.image;
    const hits = this.actions.chosen(answer).slice(0, MOST).map(({ id }) => id);
    if (hits.length === 0) {
      this.actions.say(answer, say('save.none'));
      return;
    }
    const body = { sop, frame, hits, forms: formsOf(answer.cases.write_back) };
    const sent = `${answer.cases.write_back.path} ${JSON.stringify(body)}`;
    const key = this.#keys.get(sent) ?? newKey();
    this.#keys.set(sent, key);
    this.element.disabled = true;
    this.actions.say(answer, say('save.saving'));
    const written = await this.actions.send(answer, body, key);
    // Meanwhile the button may belong to another image.
    if (this.#answer === answer) this.element.disabled = false;
    if (written !== null) this.actions.say(answer, outcome(written, hits.length));
  }
}

/** Forms that the archive stores; others are for programs. @param {WriteBack | null} request */
function formsOf(request) {
  return (request?.forms ?? []).filter((form) => form !== 'selection');
}

/** @param {Written} written @param {number} count */
function outcome({ objects }, count) {
  const refused = objects.filter(({ status }) => status === 'refused').map(({ form, reason }) => say(`save.${form}`, { reason }));
  return [say('save.saved', { count }), ...refused].join('');
}

function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

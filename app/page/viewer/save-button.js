/** "Save to archive": records similar cases of the active image in its study of the archive, where the service is set to. */

import { h } from '../shared/dom.js';
import { say } from './words.js';

/**
 * @typedef {import('./cases-api.js').ActiveImage} ActiveImage
 * @typedef {import('./cases-api.js').Case} Case
 * @typedef {import('./cases-api.js').WriteBack} WriteBack
 * @typedef {import('./cases-api.js').Written} Written
 */

/** As many as a page of the archive shows. */
const MOST = 6;

export class SaveButton {
  /** Keys of what was sent, by its text: cases that are saved again are there once. @type {Map<string, string>} */
  #keys = new Map();
  /** @type {WriteBack | null} */
  #request = null;
  /** @type {ActiveImage | null} */
  #image = null;

  /**
   * @param {{chosen: () => Case[], send: (path: string, body: object, key: string) => Promise<Written | null>, say: (text: string) => void}} actions
   *   `chosen` gives the cases to save; `send` gives null where the service did not take them, and has said why
   */
  constructor(actions) {
    this.actions = actions;
    this.element = h('button', { class: 'button', type: 'button', hidden: true, on: { click: () => this.#save() } }, say('save.button'));
  }

  /** Offer the cases of an image. @param {ActiveImage} image @param {WriteBack | null} request null: the service writes nothing */
  offer(image, request) {
    this.#image = image;
    this.#request = request;
    this.element.hidden = image.sop === null || formsOf(request).length === 0 || this.actions.chosen().length === 0;
  }

  async #save() {
    const { sop, frame } = this.#image;
    const hits = this.actions.chosen().slice(0, MOST).map(({ id }) => id);
    if (hits.length === 0) {
      this.actions.say(say('save.none'));
      return;
    }
    const body = { sop, frame, hits, forms: formsOf(this.#request) };
    const sent = `${this.#request.path} ${JSON.stringify(body)}`;
    const key = this.#keys.get(sent) ?? newKey();
    this.#keys.set(sent, key);
    this.element.disabled = true;
    this.actions.say(say('save.saving'));
    const written = await this.actions.send(this.#request.path, body, key);
    this.element.disabled = false;
    if (written !== null) this.actions.say(outcome(written, hits.length));
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

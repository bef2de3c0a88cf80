/** The dialog that saves an image in a list of cases, with a note. */

import { fill, h } from '../../shared/dom.js';
import { problemFrom } from '../../shared/http.js';
import { say } from '../words.js';

const MOST_NAME = 100;
const MOST_NOTE = 2000;
const ID_BYTES = 6;

/** @typedef {import('../api.js').CaseList} CaseList */

export class SaveCase {
  /** The list that was saved in last. @type {string | null} */
  #last = null;
  /** @type {string | null} */
  #image = null;

  /**
   * @param {() => {api: import('../api.js').SearchApi, collection: string}} now
   * @param {(detail: {collection: string, id: string, list: string, name: string}) => void} saved
   */
  constructor(now, saved) {
    this.now = now;
    this.saved = saved;
    this.lists = h('select', { class: 'select', on: { change: () => this.#showName() } });
    this.name = h('input', { class: 'box-field', type: 'text', maxLength: MOST_NAME, autocomplete: 'off' });
    this.naming = h('label', {}, say('case.name'), this.name);
    this.note = h('textarea', { class: 'box-field', rows: 3, maxLength: MOST_NOTE, placeholder: say('case.noteWhy') });
    this.status = h('p', { class: 'box-status', role: 'status' });
    this.button = h('button', { class: 'button primary' }, say('case.save'));
    this.form = h('form', { class: 'box-form', on: { submit: (event) => this.#onSubmit(event) } },
      h('label', {}, say('case.list'), this.lists), this.naming, h('label', {}, say('case.note'), this.note), this.status,
      h('div', { class: 'box-end' }, h('button', { class: 'button', type: 'button', on: { click: () => this.element.close() } }, say('case.cancel')), this.button));
    this.element = h('dialog', { class: 'box save-case', 'aria-label': say('case.save'),
      on: { keydown: (event) => event.stopPropagation(), click: (event) => event.target === this.element && this.element.close() } },
      h('h2', {}, say('case.save')), this.form);
  }

  /** @param {string} id of the image */
  async open(id) {
    const { api, collection } = this.now();
    this.#image = id;
    this.note.value = '';
    this.name.value = '';
    fill(this.status);
    this.button.disabled = true;
    if (!this.element.open) this.element.showModal();
    try {
      const lists = await api.caseLists(collection);
      if (this.#image !== id) return;
      this.#showLists(lists);
      this.button.disabled = false;
      // Keep the position of someone who is already writing.
      const at = this.element.getRootNode().activeElement;
      if (at !== this.name && at !== this.note) (this.naming.hidden ? this.note : this.name).focus();
    } catch (error) {
      this.#refuse(error);
    }
  }

  /** @param {CaseList[]} lists */
  #showLists(lists) {
    const chosen = lists.some(({ id }) => id === this.#last) ? this.#last : lists[0]?.id;
    fill(this.lists, ...lists.map(({ id, name, images }) => h('option', { value: id, selected: id === chosen, data: { name } }, say('case.option', { name, count: images }))),
      h('option', { value: '', selected: chosen === undefined }, say('case.new')));
    this.#showName();
  }

  #showName() {
    this.naming.hidden = this.lists.value !== '';
    this.name.required = !this.naming.hidden;
  }

  /** @param {SubmitEvent} event */
  async #onSubmit(event) {
    event.preventDefault();
    const { api, collection } = this.now();
    const id = this.#image;
    const note = this.note.value.trim();
    this.button.disabled = true;
    try {
      const list = this.lists.value || (await api.putCaseList(collection, newId(), this.name.value.trim())).id;
      await api.saveCase(collection, list, id, note === '' ? {} : { note });
      this.#last = list;
      const name = this.name.value.trim() || this.lists.selectedOptions[0].dataset.name;
      this.element.close();
      this.saved({ collection, id, list, name });
    } catch (error) {
      this.#refuse(error);
    } finally {
      this.button.disabled = false;
    }
  }

  /** @param {unknown} error */
  #refuse(error) {
    const problem = problemFrom(error);
    fill(this.status, h('strong', {}, `${problem.title}. `), h('span', { lang: problem.lang }, problem.detail));
  }
}

/** @returns {string} an id that says nothing: proxies keep addresses */
function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(ID_BYTES)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Changes one text: the name of a list, or the note of a case. */

import { fill, h } from '../shared/dom.js';
import { problemFrom } from '../shared/http.js';
import { say } from './words.js';

const MOST_NAME = 100;
const MOST_NOTE = 2000;

/**
 * @typedef {{title: string, label: string, text: string, isNote: boolean, save: (text: string) => Promise<HTMLElement | null>}} Edit
 *   `save` stores the text, and returns the control that replaces the one that opened it; null: it is the same
 */

export class EditDialog {
  /** @type {Edit | null} */
  #edit = null;
  #wasRefused = false;

  /** @param {() => void} refused the dialog is closed after a refusal: what is shown behind may be older than what the service has */
  constructor(refused) {
    this.title = h('h2', { id: 'edit-title' });
    this.label = h('span', {});
    this.field = h('span', {});
    this.status = h('p', { class: 'box-status', role: 'status' });
    this.button = h('button', { class: 'button primary' }, say('edit.save'));
    this.form = h('form', { class: 'box-form', on: { submit: (event) => this.#onSubmit(event), keydown: (event) => this.#onKey(event) } },
      h('label', {}, this.label, this.field), this.status,
      h('div', { class: 'box-end' }, h('button', { class: 'button', type: 'button', on: { click: () => this.element.close() } }, say('edit.cancel')), this.button));
    this.element = h('dialog', { class: 'box edit', 'aria-labelledby': 'edit-title', on: { keydown: (event) => event.stopPropagation(), close: () => this.#wasRefused && refused() } }, this.title, this.form);
  }

  /** @param {Edit} edit */
  ask(edit) {
    this.#edit = edit;
    this.title.textContent = edit.title;
    this.label.textContent = edit.label;
    this.input = edit.isNote
      ? h('textarea', { class: 'box-field', rows: 5, maxLength: MOST_NOTE, value: edit.text })
      : h('input', { class: 'box-field', type: 'text', maxLength: MOST_NAME, required: true, autocomplete: 'off', value: edit.text });
    fill(this.field, this.input);
    fill(this.status);
    this.#wasRefused = false;
    this.element.showModal();
    this.input.focus();
  }

  /** Enter begins a line in a note. @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey) || this.button.disabled) return;
    event.preventDefault();
    this.form.requestSubmit();
  }

  /** @param {SubmitEvent} event */
  async #onSubmit(event) {
    event.preventDefault();
    const edit = this.#edit;
    fill(this.status);
    this.button.disabled = true;
    try {
      const control = await edit.save(this.input.value.trim());
      this.#wasRefused = false;
      this.element.close();
      control?.focus();
    } catch (error) {
      const { title, detail, lang } = problemFrom(error);
      fill(this.status, h('strong', {}, `${title}. `), h('span', { lang }, detail));
      this.#wasRefused = true;
    } finally {
      this.button.disabled = false;
    }
  }
}

/** Asks before something is changed, shows that it is under way, and why it was refused. */

import { fill, h } from './dom.js';
import { problemFrom } from './http.js';
import { say } from './words.js';

/**
 * @typedef {{title: string, text: string, act: string, busy: string, run: () => Promise<string>}} Step
 *   `act` names the button, `busy` is shown while `run` is under way, which gives the sentence that says what was done
 */

export class ConfirmDialog {
  /** @type {Step | null} */
  #step = null;

  /** @param {{done: (sentence: string) => void, refused: () => void}} actions */
  constructor(actions) {
    this.actions = actions;
    this.title = h('h2', { id: 'confirm-title' });
    this.text = h('p', {});
    this.problem = h('div', { class: 'confirm-problem', role: 'alert' });
    this.leave = h('button', { class: 'button', type: 'button', on: { click: () => this.element.close() } }, say('confirm.leave'));
    this.act = h('button', { class: 'button primary', type: 'button', on: { click: () => this.#run() } });
    this.element = h('dialog', { class: 'box confirm', 'aria-labelledby': 'confirm-title', on: { cancel: (event) => this.isBusy && event.preventDefault(), keydown: (event) => event.stopPropagation() } },
      this.title, this.text, this.problem, h('div', { class: 'box-end' }, this.leave, this.act));
  }

  get isBusy() {
    return this.act.disabled;
  }

  /** @param {Step} step */
  ask(step) {
    this.#step = step;
    this.title.textContent = step.title;
    this.text.textContent = step.text;
    fill(this.problem);
    this.#showBusy(false);
    this.element.showModal();
    this.act.focus();
  }

  async #run() {
    const step = this.#step;
    fill(this.problem);
    this.#showBusy(true);
    try {
      const sentence = await step.run();
      this.element.close();
      this.actions.done(sentence);
    } catch (error) {
      const { title, detail, lang } = problemFrom(error);
      fill(this.problem, h('strong', {}, title), h('p', { lang }, detail));
      this.#showBusy(false);
      this.act.focus();
      this.actions.refused();
    }
  }

  /** @param {boolean} busy */
  #showBusy(busy) {
    this.act.disabled = busy;
    this.leave.disabled = busy;
    this.act.textContent = busy ? this.#step.busy : this.#step.act;
  }
}

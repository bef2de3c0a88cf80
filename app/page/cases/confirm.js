/** Asks before a note is removed. */

import { h } from '../shared/dom.js';
import { say } from './words.js';

export class Confirm {
  /** @type {(() => void) | null} */
  #act = null;

  constructor() {
    this.text = h('p', {});
    this.button = h('button', { class: 'button primary', type: 'button', on: { click: () => this.#run() } });
    this.element = h('dialog', { class: 'box confirm', on: { keydown: (event) => event.stopPropagation() } }, this.text,
      h('div', { class: 'box-end' }, h('button', { class: 'button', type: 'button', on: { click: () => this.element.close() } }, say('confirm.leave')), this.button));
  }

  /** @param {string} text @param {string} name of the button @param {() => void} act */
  ask(text, name, act) {
    this.#act = act;
    this.text.textContent = text;
    this.element.setAttribute('aria-label', text);
    this.button.textContent = name;
    this.element.showModal();
  }

  #run() {
    this.element.close();
    this.#act();
  }
}

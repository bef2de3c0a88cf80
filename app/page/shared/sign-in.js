/** Signing in by a key, and out again. */

import { fill, h } from './dom.js';
import { problemFrom } from './http.js';
import { icon } from './icons.js';

/** @typedef {import('./session.js').Session} Session */

/**
 * @param {Session} session @param {string} why what the key is for
 * @param {() => void} done called once somebody has signed in
 * @returns {HTMLElement}
 */
export function signInForm(session, why, done) {
  const input = h('input', { class: 'number', type: 'password', id: 'key', autocomplete: 'off', required: true });
  const button = h('button', { class: 'button primary' }, 'Sign in');
  const said = h('p', {}, why);
  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await session.signIn(input.value);
    } catch (error) {
      said.setAttribute('role', 'alert');
      fill(said, problemFrom(error).detail);
      button.disabled = false;
      input.focus();
      input.select();
      return;
    }
    done();
  };
  return h('form', { class: 'notice sign-in', on: { submit } }, icon('key'), h('h2', {}, 'Sign in'), said,
    h('label', { for: 'key', class: 'unseen' }, 'Key'), h('div', { class: 'key-row' }, input, button));
}

/** Whoever is signed in, with a button that ends the session; nothing for nobody. */
export class SignedIn {
  /** @param {() => Session} session @param {{out: () => void, refused: (error: unknown) => void}} actions */
  constructor(session, actions) {
    this.session = session;
    this.name = h('span', { class: 'person-name' });
    this.button = h('button', { class: 'button', type: 'button', on: { click: () => this.#signOut() } }, 'Sign out');
    this.element = h('span', { class: 'person', hidden: true }, this.name, this.button);
    this.actions = actions;
  }

  show() {
    const { name } = this.session();
    this.element.hidden = name === null;
    this.name.textContent = name;
    this.name.title = name ?? '';
  }

  async #signOut() {
    try {
      await this.session().signOut();
    } catch (error) {
      this.actions.refused(error);
      return;
    }
    this.show();
    this.actions.out();
  }
}

/** Signing in by a key or at the organisation's own page, and out again. */

import { fill, h } from './dom.js';
import { problemFrom } from './http.js';
import { icon } from './icons.js';
import { say } from './words.js';

/** @typedef {import('./session.js').Session} Session */

/** Texts of what became of a sign-in at the organisation's page, by the reason in the address. @type {Record<string, string>} */
const REASONS = {
  refused: 'signIn.refused', unavailable: 'signIn.unavailable', ended: 'signIn.ended', unfit: 'signIn.unfit', 'too-many-roles': 'signIn.tooManyRoles',
};

/** What a sign-in that failed has left in the address; it is taken out of there. @returns {string | null} */
export function takeSignInProblem() {
  const reason = new URLSearchParams(location.hash.slice(1)).get('sign-in');
  if (reason === null) return null;
  history.replaceState(history.state, '', location.pathname + location.search);
  return Object.hasOwn(REASONS, reason) ? say(REASONS[reason]) : null;
}

/**
 * @param {Session} session @param {string | null} why what the key is for; null: to go on after the session has ended
 * @param {() => void} done called once somebody has signed in
 * @param {string | null} [problem] what has kept somebody from signing in at the organisation's page
 * @returns {HTMLElement}
 */
export function signInForm(session, why, done, problem = null) {
  const input = h('input', { class: 'number', type: 'password', id: 'key', autocomplete: 'off', required: true });
  const button = h('button', { class: 'button primary' }, say('signIn.title'));
  const message = h('p', { role: problem !== null && 'alert' }, problem ?? why ?? say('signIn.sessionEnded'));
  const elsewhere = session.signInAddress;
  // The page around may want to keep what is not in its address.
  const leaves = ({ currentTarget }) => currentTarget.dispatchEvent(new CustomEvent('sign-in-elsewhere', { bubbles: true, composed: true }));
  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await session.signIn(input.value);
    } catch (error) {
      const { detail, lang } = problemFrom(error);
      message.setAttribute('role', 'alert');
      fill(message, h('span', { lang }, detail));
      button.disabled = false;
      input.focus();
      input.select();
      return;
    }
    done();
  };
  return h('form', { class: 'notice sign-in', on: { submit } }, icon('key'), h('h2', {}, say('signIn.title')), message,
    h('label', { for: 'key', class: 'unseen' }, say('signIn.key')), h('div', { class: 'key-row' }, input, button),
    elsewhere !== null && h('a', { class: 'button', href: elsewhere, on: { click: leaves } }, say('signIn.organisation')));
}

/** The signed-in user, with a button that ends the session; after that, the way to the sign-out of the organisation. */
export class SignedIn {
  /** @param {() => Session} session @param {{out: () => void, refused: (error: unknown) => void}} actions */
  constructor(session, actions) {
    this.session = session;
    this.name = h('span', { class: 'person-name' });
    this.button = h('button', { class: 'button', type: 'button', on: { click: () => this.#signOut() } }, say('signOut.here'));
    this.left = h('a', { class: 'button', hidden: true }, say('signOut.organisation'));
    this.element = h('span', { class: 'person', hidden: true }, this.name, this.button, this.left);
    this.actions = actions;
  }

  show() {
    const { name, leftProvider } = this.session();
    this.element.hidden = name === null && leftProvider === null;
    this.button.hidden = name === null;
    this.left.hidden = name !== null || leftProvider === null;
    if (leftProvider !== null) this.left.href = leftProvider;
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
    // The page around may show what only they may see.
    this.element.dispatchEvent(new CustomEvent('sign-out', { bubbles: true, composed: true }));
    this.actions.out();
  }
}

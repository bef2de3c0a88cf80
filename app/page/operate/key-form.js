/** Asks for the admin key of a service that has one. */

import { h } from '../shared/dom.js';
import { icon } from '../shared/icons.js';

/**
 * @param {import('../shared/http.js').ProblemError} problem
 * @param {boolean} refused whether a key was given and not taken
 * @param {(key: string) => void} give
 * @returns {HTMLElement}
 */
export function keyForm(problem, refused, give) {
  const input = h('input', { class: 'number', type: 'password', id: 'admin-key', autocomplete: 'off', required: true });
  const submit = (event) => {
    event.preventDefault();
    give(input.value);
  };
  return h('form', { class: 'notice', on: { submit } }, icon('key'),
    h('h3', {}, problem.title),
    h('p', { role: refused ? 'alert' : null }, refused ? 'That key was not taken. Check it, then try again.' : 'Jobs and buttons are for whoever has it. It stays in this tab until the tab is closed.'),
    h('label', { for: 'admin-key', class: 'unseen' }, 'Admin key'),
    h('div', { class: 'key-row' }, input, h('button', { class: 'button primary' }, 'Use this key')));
}

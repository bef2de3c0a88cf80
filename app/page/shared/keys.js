/** The keys of all pages, in one table: a key has one owner, the action that it means wherever it counts. */

import { h } from './dom.js';
import { say } from './words.js';

/** Keys of each action, in lower case, by where they count: a picture is an opened image or a film. @type {Record<string, Record<string, string[]>>} */
export const KEYS = {
  page: { search: ['/'], switch: ['F6'], filters: ['f'], words: ['w'], help: ['?'] },
  hit: { more: ['m'], less: ['u'], right: ['y'], wrong: ['n'], save: ['s'], compare: ['c'] },
  picture: { zoomIn: ['+', '='], zoomOut: ['-'], fit: ['0'], actual: ['o'], invert: ['i'], region: ['b'] },
  image: { grey: ['g'], matched: ['e'] },
  film: { preset: ['1', '2', '3', '4', '5'], mirror: ['h'], turn: ['r'], reset: ['z'], step: ['k'], layout: ['l'], remove: ['delete'] },
};

const ARROWS = '← ↑ → ↓';
/** Keys whose meaning is that of what has the focus. @type {Record<string, () => Array<[string, string]>>} */
const MOVES = {
  page: () => [['Esc', 'close']],
  hit: () => [[ARROWS, 'walk'], [say('keys.enter'), 'open']],
  picture: () => [],
  image: () => [['← →', 'next']],
  film: () => [[ARROWS, 'beside'], [say('keys.enter'), 'alone'], [say('keys.shift', { keys: ARROWS }), 'window'], [say('keys.alt', { keys: ARROWS }), 'pan']],
};
const OWNERS = new Map(Object.values(KEYS).flatMap((actions) => Object.entries(actions).flatMap(([action, keys]) => keys.map((key) => [key, action]))));

/** @param {KeyboardEvent} event @returns {string | null} the action that its key means */
export function actionOf({ key, ctrlKey, metaKey, altKey }) {
  if (ctrlKey || metaKey || altKey) return null;
  return OWNERS.get(key) ?? OWNERS.get(key.toLowerCase()) ?? null;
}

/**
 * Take keys that count wherever the focus is, outside of inputs and dialogs.
 *
 * @param {HTMLElement | Document} target @param {Record<string, () => void>} actions @returns {() => void} stops it
 */
export function takeKeys(target, actions) {
  const listener = (event) => {
    const act = actions[actionOf(event) ?? ''];
    if (event.defaultPrevented || isTyping(event) || !act) return;
    event.preventDefault();
    act();
  };
  target.addEventListener('keydown', listener);
  return () => target.removeEventListener('keydown', listener);
}

/** @param {Event} event @returns {boolean} whether a key is typed into something, or is for a box that covers the page */
export function isTyping(event) {
  const [origin] = event.composedPath();
  return origin instanceof Element && origin.closest('input:not([type=checkbox]), select, textarea, dialog, [contenteditable]') !== null;
}

/** @returns {HTMLDialogElement} the box that lists all keys */
export function keysDialog() {
  const row = (keys, name) => [h('dt', {}, ...keys.map((key) => h('kbd', {}, key))), h('dd', {}, say(`keys.${name}`))];
  const part = ([area, actions]) => [h('h3', {}, say(`keys.in.${area}`)), h('dl', {},
    ...MOVES[area]().flatMap(([keys, name]) => row([keys], name)),
    ...Object.entries(actions).flatMap(([action, keys]) => row(keys.map((key) => (key === 'delete' ? say('keys.delete') : key)), action)))];
  const dialog = h('dialog', { class: 'box keys-box', 'aria-label': say('keys.title') }, h('h2', { autofocus: true, tabIndex: -1 }, say('keys.title')),
    ...Object.entries(KEYS).flatMap(part), h('p', { class: 'quiet' }, say('keys.pointer')),
    h('form', { class: 'box-end', method: 'dialog' }, h('button', { class: 'button primary' }, say('keys.closeBox'))));
  dialog.addEventListener('click', (event) => event.target === dialog && dialog.close());
  return /** @type {HTMLDialogElement} */ (dialog);
}

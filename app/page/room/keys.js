/** The keys of the light table, and the box that lists them. */

import { h } from '../shared/dom.js';
import { say } from './words.js';

const ARROWS = '← ↑ → ↓';

/** @returns {Array<[string[], string]>} keys, and the text of what they do */
const keysOf = () => [
  [['/', 'F6'], 'key.search'],
  [[say('enterKey'), 'c'], 'key.compare'],
  [[ARROWS], 'key.move'],
  [[say('enterKey')], 'key.alone'],
  [['1', '2', '3', '4', '5'], 'key.presets'],
  [[say('withShift', { keys: ARROWS })], 'key.window'],
  [[say('withAlt', { keys: ARROWS })], 'key.pan'],
  [['+', '−'], 'key.zoom'],
  [['F', 'O', '0'], 'key.fit'],
  [['I', 'H', 'R'], 'key.invert'],
  [['S'], 'key.step'],
  [['L'], 'key.layout'],
  [['B', 'M'], 'key.region'],
  [[say('deleteKey')], 'key.delete'],
];

/** @returns {HTMLDialogElement} */
export function keysDialog() {
  const dialog = h('dialog', { class: 'box room-keys', 'aria-label': say('keys') }, h('h2', {}, say('keys')),
    h('dl', {}, ...keysOf().flatMap(([keys, text]) => [h('dt', {}, ...keys.map((key) => h('kbd', {}, key))), h('dd', {}, say(text))])),
    h('p', { class: 'quiet' }, say('key.drag')), h('p', { class: 'quiet' }, say('key.wheel')),
    h('form', { class: 'box-end', method: 'dialog' }, h('button', { class: 'button primary' }, say('keysClose'))));
  dialog.addEventListener('click', (event) => event.target === dialog && dialog.close());
  return /** @type {HTMLDialogElement} */ (dialog);
}

/** @param {Event} event @returns {boolean} whether a key is typed into something, or is for a box that lies over the page */
export function isTyping(event) {
  const [origin] = event.composedPath();
  return origin instanceof Element && origin.closest('input:not([type=checkbox]), select, textarea, dialog, [contenteditable]') !== null;
}

/** Notices instead of hits, or above them. */

import { h } from '../../shared/dom.js';
import { icon } from '../../shared/icons.js';

/** @typedef {import('../../shared/http.js').ProblemError} ProblemError */

/** @param {boolean} filtered @param {() => void} clearFilter @returns {HTMLElement} */
export function nothingFound(filtered, clearFilter) {
  return h('div', { class: 'notice' }, icon('nothing'),
    h('h2', {}, filtered ? 'No image passes the filters' : 'This collection has no images yet'),
    h('p', {}, filtered ? 'Every image of the collection was left out. Loosen a filter, or clear them all.' : 'Index a data set, then search again.'),
    filtered && h('button', { class: 'button primary', type: 'button', on: { click: clearFilter } }, 'Clear the filters'));
}

/** @param {boolean} filtered @param {() => void} byLikeness @returns {HTMLElement} instead of images with exact words, of which there are none */
export function noneHasWords(filtered, byLikeness) {
  return h('div', { class: 'notice' }, icon('nothing'),
    h('h2', {}, 'No image has these words'),
    h('p', {}, `No text or report of ${filtered ? 'an image that passes the filters' : 'this collection'} has any of them. Try other words, or match by likeness.`),
    h('button', { class: 'button primary', type: 'button', on: { click: byLikeness } }, 'Match by likeness'));
}

/** @returns {HTMLElement} */
export function imageIsGone() {
  return h('div', { class: 'notice' }, icon('image'),
    h('h2', {}, 'The image of this search is no longer here'),
    h('p', {}, 'An image that you searched with stays in your browser and is not part of a link. Drop or choose it again.'));
}

const NAMES = { filter: 'filter', words: 'switch for exact words', by: 'mark of an image', group: 'field to group by' };

/** @param {string[]} broken parameters of a link that cannot be read @param {() => void} leaveOut @returns {HTMLElement} */
export function brokenLink(broken, leaveOut) {
  return h('div', { class: 'notice problem', role: 'alert' }, icon('warning'),
    h('h2', {}, 'A part of this link is broken'),
    h('p', {}, `Nothing was searched: the ${broken.map((name) => NAMES[name] ?? name).join(' and the ')} in it cannot be read. Ask for the link again, or go on without it.`),
    h('button', { class: 'button primary', type: 'button', on: { click: leaveOut } }, 'Go on without it'));
}

/** @returns {HTMLElement} */
export function noCollections() {
  return h('div', { class: 'notice' }, icon('nothing'),
    h('h2', {}, 'Nothing can be searched yet'),
    h('p', {}, 'The service runs, but holds no collection. Index one with:'),
    h('pre', {}, 'recoquest index COLLECTION --bundle BUNDLE --data DIR'));
}

/** @param {string} name @returns {HTMLElement} for whoever signed in and may nothing */
export function noRole(name) {
  return h('div', { class: 'notice' }, icon('key'),
    h('h2', {}, 'You have no role here yet'),
    h('p', {}, `You are signed in as ${name}, and neither your name nor a group of yours has a role in this service. Ask the administrator of this service for one, then sign out and in again.`));
}

/** @param {import('../api.js').Truncation} truncation @returns {HTMLElement} */
export function truncationNotice({ tokens, kept, searched_text: searched }) {
  return h('p', { class: 'strip' }, icon('scissors'),
    h('span', {}, `The text was cut: the model reads ${kept} tokens, yours has ${tokens}. Searched for: `, h('q', {}, searched)));
}

/** @returns {HTMLElement} said above hits of which none has the exact words */
export function noWordsNotice() {
  return h('p', { class: 'strip' }, icon('warning'),
    h('span', {}, 'No image found has any of these words in its texts or report. The order is by likeness alone.'));
}

/** @param {string[]} words of the query that no text of the collection has @returns {HTMLElement} */
export function unknownWordsNotice(words) {
  const quoted = words.map((word) => `\u201c${word}\u201d`);
  const last = quoted.pop();
  return h('p', { class: 'strip' }, icon('warning'),
    h('span', {}, quoted.length === 0 ? `No text here has the word ${last}.` : `No text here has the words ${quoted.join(', ')} and ${last}.`));
}

/** @param {ProblemError} problem @returns {HTMLElement} said above hits when what the reader said of one was refused */
export function notKeptNotice(problem) {
  return h('p', { class: 'strip', role: 'alert' }, icon('warning'), h('span', {}, `Your judgement was not kept. ${problem.detail}`));
}

/** @returns {HTMLElement} said above hits that the service itself doubts */
export function doubtNotice() {
  return h('p', { class: 'doubt' }, icon('warning'),
    h('span', {}, 'The collection may have nothing of this: the query is unlike what it holds.'));
}

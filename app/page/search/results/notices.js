/** Notices instead of hits, or above them. */

import { h } from '../../shared/dom.js';
import { icon } from '../../shared/icons.js';
import { parts, say } from '../words.js';

/** @typedef {import('../../shared/http.js').ProblemError} ProblemError */

/** @param {boolean} filtered @param {() => void} clearFilter @returns {HTMLElement} */
export function nothingFound(filtered, clearFilter) {
  return h('div', { class: 'notice' }, icon('nothing'),
    h('h2', {}, filtered ? say('notice.nonePasses') : say('notice.noImages')),
    h('p', {}, filtered ? say('notice.nonePassesWhy') : say('notice.noImagesWhy')),
    filtered && h('button', { class: 'button primary', type: 'button', on: { click: clearFilter } }, say('notice.clearFilters')));
}

/** @param {boolean} filtered @param {() => void} byLikeness @returns {HTMLElement} instead of images with exact words, of which there are none */
export function noneHasWords(filtered, byLikeness) {
  return h('div', { class: 'notice' }, icon('nothing'),
    h('h2', {}, say('notice.noneHasWords')),
    h('p', {}, filtered ? say('notice.noneFilteredHasWords') : say('notice.noneHasWordsWhy')),
    h('button', { class: 'button primary', type: 'button', on: { click: byLikeness } }, say('notice.byLikeness')));
}

/** @returns {HTMLElement} */
export function imageIsGone() {
  return h('div', { class: 'notice' }, icon('image'),
    h('h2', {}, say('notice.imageIsGone')),
    h('p', {}, say('notice.imageIsGoneWhy')));
}

/** @param {string[]} broken parameters of a link that cannot be read @param {() => void} leaveOut @returns {HTMLElement} */
export function brokenLink(broken, leaveOut) {
  return h('div', { class: 'notice problem', role: 'alert' }, icon('warning'),
    h('h2', {}, say('notice.brokenLink')),
    h('p', {}, say('notice.brokenLinkWhy', { count: broken.length, parts: broken.map((name) => say(`broken.${name}`)).join(say('joined.and')) })),
    h('button', { class: 'button primary', type: 'button', on: { click: leaveOut } }, say('notice.goOn')));
}

/** @returns {HTMLElement} */
export function noCollections() {
  return h('div', { class: 'notice' }, icon('nothing'),
    h('h2', {}, say('notice.noCollections')),
    h('p', {}, say('notice.noCollectionsWhy')),
    h('pre', {}, 'recoquest index COLLECTION --bundle BUNDLE --data DIR'));
}

/** @param {string} name @returns {HTMLElement} for signed-in users without any role */
export function noRole(name) {
  return h('div', { class: 'notice' }, icon('key'),
    h('h2', {}, say('notice.noRole')),
    h('p', {}, say('notice.noRoleWhy', { name })));
}

/** @param {import('../api.js').Truncation} truncation @returns {HTMLElement} */
export function truncationNotice({ tokens, kept, searched_text: searched }) {
  return h('p', { class: 'strip' }, icon('scissors'),
    h('span', {}, ...parts('notice.truncated', { kept, tokens, text: h('q', {}, searched) })));
}

/** @returns {HTMLElement} shown above hits without any of the exact words */
export function noWordsNotice() {
  return h('p', { class: 'strip' }, icon('warning'),
    h('span', {}, say('notice.noWords')));
}

/** @param {string[]} words of the query that no text of the collection has @returns {HTMLElement} */
export function unknownWordsNotice(words) {
  const quoted = words.map((word) => say('notice.quoted', { word }));
  const joined = [quoted.slice(0, -1).join(', '), quoted.at(-1)].filter(Boolean).join(say('joined.and'));
  return h('p', { class: 'strip' }, icon('warning'),
    h('span', {}, say('notice.unknownWords', { count: words.length, words: joined })));
}

/** @param {ProblemError} problem @returns {HTMLElement} shown above hits when a judgement was refused */
export function notKeptNotice(problem) {
  return h('p', { class: 'strip', role: 'alert' }, icon('warning'), h('span', {}, ...parts('notice.notKept', { detail: h('span', { lang: problem.lang }, problem.detail) })));
}

/** @returns {HTMLElement} shown above hits that the service itself doubts */
export function doubtNotice() {
  return h('p', { class: 'doubt' }, icon('warning'),
    h('span', {}, say('notice.doubt')));
}

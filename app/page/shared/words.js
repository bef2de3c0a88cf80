/**
 * The texts of the pages in the reader's language. `words/` has a file for each language, with a section for each page; a text that
 * a language lacks is English. CONTRIBUTING.md says how a language is added.
 */

import { de } from '../words/de.js';
import { en } from '../words/en.js';

/**
 * @typedef {string | {one: string, other: string}} Text with placeholders such as `{name}`; two forms where `count` decides on one
 * @typedef {Record<string, Text>} Table texts of a page, by key
 */

/** The first one has every text. @type {Record<string, Record<string, Table>>} */
const TEXTS = { en, de };
const LANGUAGES = Object.keys(TEXTS);

/** Language of the document: elements of one page share it. */
let spoken = LANGUAGES[0];

/** @returns {string} the language of the texts, which begins with that of the tables */
export function language() {
  return spoken;
}

/**
 * Choose the language of an element: that of the nearest `lang` attribute, otherwise the browser's, otherwise English.
 *
 * @param {Element} element
 */
export function speakAt(element) {
  spoken = [langOf(element), ...navigator.languages].map(spokenOf).find((one) => one !== undefined) ?? LANGUAGES[0];
}

/** Choose the language of a page of the service, say so in its root, and fill its elements that name a text. */
export function speakPage() {
  const root = document.documentElement;
  speakAt(root);
  root.lang = spoken;
  for (const element of root.querySelectorAll('[data-say]')) element.textContent = say(element.dataset.say);
  for (const element of root.querySelectorAll('[data-say-label]')) element.setAttribute('aria-label', say(element.dataset.sayLabel));
}

/**
 * @param {string} page its section in the files of texts
 * @returns {{say: (key: string, values?: Record<string, string | number>) => string, parts: (key: string, values?: Record<string, any>) => any[],
 *   term: (key: string, otherwise: string) => string}} `say` gives a text with its values; `parts` its pieces, where values are nodes; `term`
 *   the text of a name that the service brings, which the texts may not have
 */
export function speaker(page) {
  const parts = (key, values = {}) => {
    const from = [spoken, LANGUAGES[0]].find((one) => Object.hasOwn(TEXTS[one][page], key));
    const text = formOf(from ? TEXTS[from][page][key] : key, from, values.count);
    return text.split(/\{(\w+)\}/).map((piece, index) => (index % 2 === 0 ? piece : shown(piece, values[piece])));
  };
  const say = (key, values) => parts(key, values).join('');
  const term = (key, otherwise) => (Object.hasOwn(TEXTS[LANGUAGES[0]][page], key) ? say(key) : otherwise);
  return { say, parts, term };
}

export const { say, parts, term } = speaker('shared');

/** @param {number} number @param {Intl.NumberFormatOptions} [options] @returns {string} as a reader writes it */
export function numberText(number, options) {
  return number.toLocaleString(spoken, options);
}

/** @param {string} date ISO 8601, in full @returns {string} in English as it is: readers of two countries order its parts differently */
export function dayText(date) {
  if (spoken === 'en' || !/^\d{4}-\d{2}-\d{2}$/.test(date)) return date;
  return new Date(date).toLocaleDateString(spoken, { timeZone: 'UTC', year: 'numeric', month: '2-digit', day: '2-digit' });
}

/** @param {string} stamp ISO 8601 @returns {string} in the reader's own time */
export function timeText(stamp) {
  return new Date(stamp).toLocaleString(spoken, { dateStyle: 'medium', timeStyle: 'short' });
}

/** @param {Text} text @param {string} one language @param {number} [count] */
function formOf(text, one, count) {
  return typeof text === 'string' ? text : (text[new Intl.PluralRules(one).select(count)] ?? text.other);
}

/** @param {string} name @param {any} value */
function shown(name, value) {
  return name === 'count' && typeof value === 'number' ? numberText(value) : value;
}

/** @param {Element} element @returns {string} of the nearest attribute, also outside of a shadow tree */
function langOf(element) {
  for (let near = element; near; near = near.parentElement ?? near.getRootNode().host) if (near.lang) return near.lang;
  return '';
}

/** @param {string} tag such as `de-AT` @returns {string | undefined} */
function spokenOf(tag) {
  return LANGUAGES.find((one) => one === tag.toLowerCase().split('-')[0]);
}

/** What is searched for, and its form in an address. */

/**
 * @typedef {{kind: 'none'}
 *   | {kind: 'text', text: string}
 *   | {kind: 'image', image: Blob, name: string}
 *   | {kind: 'like', id: string}} Query
 * @typedef {import('./filter.js').Filter} Filter
 * @typedef {{collection: string | null, query: Query, filter: Filter, opened: string | null}} SearchState
 */

import { expressionOf, filterOf } from './filter.js';

/** @type {Query} */
export const NO_QUERY = Object.freeze({ kind: 'none' });

/** @param {string} text @returns {Query} */
export function textQuery(text) {
  const trimmed = text.trim();
  return trimmed ? { kind: 'text', text: trimmed } : NO_QUERY;
}

/** @param {Query} a @param {Query} b @returns {boolean} */
export function sameQuery(a, b) {
  return a.kind === b.kind && a.text === b.text && a.id === b.id && a.image === b.image;
}

/**
 * The part of an address after `?`. An uploaded image has no place in an address: only `by=image` marks it.
 *
 * @param {SearchState} state
 * @returns {string}
 */
export function toAddress({ collection, query, filter, opened }) {
  const parameters = new URLSearchParams();
  if (collection) parameters.set('collection', collection);
  if (query.kind === 'text') parameters.set('q', query.text);
  if (query.kind === 'like') parameters.set('like', query.id);
  if (query.kind === 'image') parameters.set('by', 'image');
  const expression = expressionOf(filter);
  if (expression) parameters.set('filter', JSON.stringify(expression));
  if (opened) parameters.set('image', opened);
  return parameters.toString();
}

/**
 * @param {string} search
 * @returns {SearchState & {imageIsGone: boolean}} `imageIsGone` when the address stands for a search by an uploaded image
 */
export function fromAddress(search) {
  const parameters = new URLSearchParams(search);
  const like = parameters.get('like');
  return {
    collection: parameters.get('collection'),
    query: like ? { kind: 'like', id: like } : textQuery(parameters.get('q') ?? ''),
    filter: filterOf(parsed(parameters.get('filter'))),
    opened: parameters.get('image'),
    imageIsGone: parameters.get('by') === 'image',
  };
}

/** @param {string | null} json @returns {unknown} */
function parsed(json) {
  try {
    return json ? JSON.parse(json) : null;
  } catch {
    return null;
  }
}

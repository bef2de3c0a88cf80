/** A search as a text: in a link that is shared, and in the history of the tab. */

import { expressionOf, noFilter, parsedFilter } from './filter.js';
import { NO_QUERY, withText } from './query.js';

/** @typedef {import('./query.js').SearchState} SearchState */

/**
 * What an address shows of a search: the collection, of which no server and no history learns anything by it.
 *
 * @param {SearchState} state
 * @returns {string}
 */
export function toAddress({ collection }) {
  return collection ? `?${new URLSearchParams({ collection })}` : '';
}

/** @param {string} text @returns {boolean} whether it has more of a search than its collection: a link, or an address of older versions */
export function isLink(text) {
  return [...new URLSearchParams(text).keys()].some((name) => name !== 'collection');
}

/**
 * The part of a link after `#`. An uploaded image has no place in it: only `by=image` marks it.
 *
 * @param {SearchState} state
 * @returns {string}
 */
export function toLink({ collection, query, filter, opened }) {
  const parameters = new URLSearchParams();
  if (collection) parameters.set('collection', collection);
  if (query.text) parameters.set('q', query.text);
  if (query.picture) parameters.set('by', 'image');
  for (const side of ['like', 'unlike']) for (const id of query[side]) parameters.append(side, id);
  if (query.words) parameters.set('words', query.likeness ? 'exact' : 'only');
  if (query.group) parameters.set('group', query.group);
  const expression = expressionOf(filter);
  if (expression) parameters.set('filter', JSON.stringify(expression));
  if (opened) parameters.set('image', opened);
  return parameters.toString();
}

/** Checks of the parameters that can be broken. @type {Record<string, (value: string) => boolean>} */
const WHOLE = {
  filter: (value) => parsedFilter(value) !== null,
  words: (value) => value === 'exact' || value === 'only',
  by: (value) => value === 'image',
  group: (value) => value !== '',
};

/**
 * @param {string} text
 * @returns {SearchState & {imageIsGone: boolean, broken: string[]}} `imageIsGone` when the link stands for a search by an uploaded
 *   image; `broken` has the names of the parameters that cannot be read
 */
export function fromLink(text) {
  const parameters = new URLSearchParams(text);
  const broken = Object.keys(WHOLE).filter((name) => parameters.has(name) && !WHOLE[name](parameters.get(name)));
  const given = (name) => (broken.includes(name) ? null : parameters.get(name));
  const examples = (side) => [...new Set(parameters.getAll(side).filter(Boolean))];
  const like = examples('like');
  return {
    collection: parameters.get('collection'),
    query: {
      ...withText(NO_QUERY, parameters.get('q') ?? ''),
      like,
      unlike: examples('unlike').filter((id) => !like.includes(id)),
      likeness: given('words') !== 'only',
      words: given('words') !== null,
      group: given('group'),
    },
    filter: parsedFilter(given('filter') ?? '') ?? noFilter(),
    opened: parameters.get('image'),
    imageIsGone: given('by') !== null,
    broken,
  };
}

/** What is searched for, and its form in an address. */

/**
 * @typedef {'like' | 'unlike'} Side which kind of example an image is
 * @typedef {{file: Blob, name: string}} Picture an image file that the reader brought
 * @typedef {{text: string, picture: Picture | null, like: string[], unlike: string[], words: boolean, group: string | null}} Query `like` and
 *   `unlike` hold ids of the collection; `words`: whether the text's words are looked up as well; `group`: the field of which each value
 *   has one hit
 * @typedef {import('./filter.js').Filter} Filter
 * @typedef {{collection: string | null, query: Query, filter: Filter, opened: string | null}} SearchState
 */

import { expressionOf, noFilter, parsedFilter } from './filter.js';

/** @type {Query} */
export const NO_QUERY = Object.freeze({ text: '', picture: null, like: [], unlike: [], words: false, group: null });

/** @param {Query} query @returns {boolean} whether there is nothing to search for */
export function isEmpty({ text, picture, like, unlike }) {
  return !text && !picture && like.length + unlike.length === 0;
}

/** @param {Query} query @param {string} text @returns {Query} the same with a text in the field, beside an image if there is one */
export function withText(query, text) {
  return { ...query, text: text.trim() };
}

/** @param {Query} query @param {Picture} picture @returns {Query} the same with an image in the field, and no text until one is typed */
export function withPicture(query, picture) {
  return { ...query, text: '', picture };
}

/** @param {Query} query @returns {Query} */
export function withoutPicture(query) {
  return { ...query, picture: null };
}

/** @param {Query} query @param {string} id @param {Side | null} side null: no example @returns {Query} */
export function withExample(query, id, side) {
  const others = { like: query.like.filter((other) => other !== id), unlike: query.unlike.filter((other) => other !== id) };
  return { ...query, ...others, ...(side && { [side]: [...others[side], id] }) };
}

/** @param {Query} query @returns {Query} */
export function withoutExamples(query) {
  return { ...query, like: [], unlike: [] };
}

/** @param {Query} query @param {string} id @returns {Side | null} */
export function sideOf(query, id) {
  if (query.like.includes(id)) return 'like';
  return query.unlike.includes(id) ? 'unlike' : null;
}

/** @param {Query} a @param {Query} b @returns {boolean} */
export function sameQuery(a, b) {
  return a.picture?.file === b.picture?.file && JSON.stringify(bodyOf(a)) === JSON.stringify(bodyOf(b));
}

/** @param {SearchState} a @param {SearchState} b @returns {boolean} whether both look for the same in the same place */
export function sameSearch(a, b) {
  const filters = [a, b].map(({ filter }) => JSON.stringify(expressionOf(filter)));
  return a.collection === b.collection && sameQuery(a.query, b.query) && filters[0] === filters[1];
}

/** @param {Query} query @returns {object} the part of it that the service reads as JSON */
export function bodyOf({ text, like, unlike, words, group }) {
  const examples = (ids) => ids.map((id) => ({ id }));
  return {
    ...(text && { text, ...(words && { words: text }) }),
    ...(like.length > 0 && { like: examples(like) }),
    ...(unlike.length > 0 && { unlike: examples(unlike) }),
    ...(group && { group_by: group }),
  };
}

/** @param {Query} query @returns {object | null} what the service keeps of it beside a judgement; null where there is nothing to learn from */
export function judgedOf(query) {
  const { words, group_by: group, ...judged } = bodyOf(query);
  return query.picture === null && (judged.text || judged.like) ? judged : null;
}

/** @param {Query} query @returns {string} in a few words; empty when there is nothing to search for */
export function titleOf({ text, picture, like, unlike }) {
  if (text) return text;
  if (picture) return 'search by image';
  if (like.length > 0) return `like ${like.join(', ')}`;
  return unlike.length > 0 ? `unlike ${unlike.join(', ')}` : '';
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
  if (query.text) parameters.set('q', query.text);
  if (query.picture) parameters.set('by', 'image');
  for (const side of ['like', 'unlike']) for (const id of query[side]) parameters.append(side, id);
  if (query.words) parameters.set('words', 'exact');
  if (query.group) parameters.set('group', query.group);
  const expression = expressionOf(filter);
  if (expression) parameters.set('filter', JSON.stringify(expression));
  if (opened) parameters.set('image', opened);
  return parameters.toString();
}

/** Checks of the parameters that can be broken. @type {Record<string, (value: string) => boolean>} */
const WHOLE = {
  filter: (value) => parsedFilter(value) !== null,
  words: (value) => value === 'exact',
  by: (value) => value === 'image',
  group: (value) => value !== '',
};

/**
 * @param {string} search
 * @returns {SearchState & {imageIsGone: boolean, broken: string[]}} `imageIsGone` when the address stands for a search by an uploaded
 *   image; `broken` has the names of the parameters that cannot be read
 */
export function fromAddress(search) {
  const parameters = new URLSearchParams(search);
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
      words: given('words') !== null,
      group: given('group'),
    },
    filter: parsedFilter(given('filter') ?? '') ?? noFilter(),
    opened: parameters.get('image'),
    imageIsGone: given('by') !== null,
    broken,
  };
}

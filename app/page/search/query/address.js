/** A search as a text: in a link that is shared, and in the history of the tab. */

import { expressionOf, noFilter, parsedFilter } from './filter.js';
import { CHOICES, NO_QUERY, withText } from './query.js';

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

/** @param {string} text @returns {boolean} whether it has more of a search than its collection */
export function isLink(text) {
  return [...new URLSearchParams(text).keys()].some((name) => name !== 'collection');
}

/**
 * The part of a link after `#`. An uploaded image is not part of it: only `by=image` marks it.
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
  for (const id of query.like) if (query.boxes[id]) parameters.append('box', boxText(query.boxes[id], id));
  const words = query.words ? 'only' : 'off';
  if (!query.words || !query.likeness) parameters.set('words', words);
  for (const name of Object.keys(CHOICES)) if (query[name]) parameters.set(name, query[name]);
  const expression = expressionOf(filter);
  if (expression) parameters.set('filter', JSON.stringify(expression));
  if (opened) parameters.set('image', opened);
  return parameters.toString();
}

/** @param {import('./query.js').Box} box @param {string} id */
function boxText({ x, y, width, height }, id) {
  return `${[x, y, width, height].map((side) => Number(side.toFixed(4))).join(',')} ${id}`;
}

/** @param {string} text @returns {[string, import('./query.js').Box] | null} the id of a liked image, and its part; null: it cannot be read */
function parsedBox(text) {
  const space = text.indexOf(' ');
  const [x, y, width, height, ...more] = text.slice(0, Math.max(space, 0)).split(',').map(Number);
  const inside = x >= 0 && y >= 0 && width > 0 && height > 0 && x + width <= 1.0002 && y + height <= 1.0002;
  return inside && more.length === 0 ? [text.slice(space + 1), { x, y, width: Math.min(width, 1 - x), height: Math.min(height, 1 - y) }] : null;
}

/** Checks of the parameters that can be broken. @type {Record<string, (value: string) => boolean>} */
const WHOLE = {
  filter: (value) => parsedFilter(value) !== null,
  words: (value) => ['exact', 'only', 'off'].includes(value),
  by: (value) => value === 'image',
  ...CHOICES,
  box: (value) => parsedBox(value) !== null,
};

/**
 * @param {string} text
 * @returns {SearchState & {imageIsGone: boolean, broken: string[]}} `imageIsGone` when the link is a search by an uploaded
 *   image; `broken` has the names of the parameters that cannot be read
 */
export function fromLink(text) {
  const parameters = new URLSearchParams(text);
  const broken = Object.keys(WHOLE).filter((name) => parameters.has(name) && !parameters.getAll(name).every(WHOLE[name]));
  const parameter = (name) => (broken.includes(name) ? null : parameters.get(name));
  const examples = (side) => [...new Set(parameters.getAll(side).filter(Boolean))];
  const like = examples('like');
  return {
    collection: parameters.get('collection'),
    query: {
      ...withText(NO_QUERY, parameters.get('q') ?? ''),
      like,
      unlike: examples('unlike').filter((id) => !like.includes(id)),
      boxes: Object.fromEntries(parameters.getAll('box').map(parsedBox).filter((one) => one !== null && like.includes(one[0]))),
      likeness: parameter('words') !== 'only',
      words: parameter('words') !== 'off',
      ...Object.fromEntries(Object.keys(CHOICES).map((name) => [name, parameter(name)])),
    },
    filter: parsedFilter(parameter('filter') ?? '') ?? noFilter(),
    opened: parameters.get('image'),
    imageIsGone: parameter('by') !== null,
    broken,
  };
}

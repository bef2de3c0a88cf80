/** What is searched for, and its form for the service. */

/**
 * @typedef {'like' | 'unlike'} Side which kind of example an image is
 * @typedef {{x: number, y: number, width: number, height: number}} Box a part of a picture, in fractions of its sides
 * @typedef {{file: Blob, name: string, box?: Box | null}} Picture an image file that the reader brought, and the part of it to search by
 * @typedef {{likeness: boolean, words: boolean}} Matching how a text is matched: by likeness to images, by its exact words in texts and
 *   reports, or both
 * @typedef {Matching & {text: string, picture: Picture | null, like: string[], unlike: string[], boxes: Record<string, Box>, group: string | null, sort: string | null}} Query `like` and
 *   `unlike` hold ids of the collection, `boxes` the parts of liked images to search by; `group`: the field of which each value has one hit; `sort`: the order of a list, one of
 *   `SORTS`
 * @typedef {{text?: string, keywords?: string, image_boxes?: Box[], like?: Array<{id: string, box?: Box}>, unlike?: Array<{id: string}>, group_by?: string, sort?: string}} QueryBody
 * @typedef {import('./filter.js').Filter} Filter
 * @typedef {{collection: string | null, query: Query, filter: Filter, opened: string | null}} SearchState
 */

import { expressionOf } from './filter.js';

/** Both kinds of matching are on until the reader switches one off. @type {Query} */
export const NO_QUERY = Object.freeze({ text: '', picture: null, like: [], unlike: [], boxes: Object.freeze({}), likeness: true, words: true, group: null, sort: null });

/** Orders of what has no order by likeness. */
export const SORTS = ['added', 'newest'];

/** Choices that stay from query to query and are a part of links by their own names: whether a value can be read. @type {Record<string, (value: string) => boolean>} */
export const CHOICES = { group: (value) => value !== '', sort: (value) => SORTS.includes(value) };

/** @param {Query} query @returns {Query} nothing to search for, with the matching and the choices as they are */
export function withoutQuery({ likeness, words, ...query }) {
  return { ...NO_QUERY, likeness, words, ...Object.fromEntries(Object.keys(CHOICES).map((name) => [name, query[name]])) };
}

/** @param {Query} query @returns {boolean} whether there is nothing to search for */
export function isEmpty({ text, picture, like, unlike }) {
  return !text && !picture && like.length + unlike.length === 0;
}

/** @param {Query} query @returns {boolean} whether its images have no order by likeness: all of them, or those with exact words */
export function isUnranked(query) {
  return isEmpty({ ...query, text: query.likeness ? query.text : '' });
}

/** @param {Query} query @param {keyof Matching} kind @param {boolean} on @returns {Query} one of the two kinds is always on */
export function withMatching(query, kind, on) {
  const other = kind === 'words' ? 'likeness' : 'words';
  return { ...query, [kind]: on, [other]: query[other] || !on };
}

/** @param {Query} query @param {string} text @returns {Query} the same with a text in the field, in addition to an image if there is one */
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

/** @param {Query} query @param {Box | null} box null: the whole @returns {Query} the same by a part of the reader's image */
export function withPictureBox(query, box) {
  return query.picture ? { ...query, picture: { ...query.picture, box } } : query;
}

/** @param {Query} query @param {string} id @param {Box | null} box null: the whole @returns {Query} a search by a part of a stored image alone */
export function withRegion(query, id, box) {
  return { ...withoutQuery(query), like: [id], boxes: box ? { [id]: box } : {} };
}

/** @param {Query} query @param {string} id @param {Side | null} side null: no example @returns {Query} */
export function withExample(query, id, side) {
  const { [id]: _, ...boxes } = query.boxes;
  const others = { boxes, like: query.like.filter((other) => other !== id), unlike: query.unlike.filter((other) => other !== id) };
  return { ...query, ...others, ...(side && { [side]: [...others[side], id] }) };
}

/** @param {Query} query @returns {Query} */
export function withoutExamples(query) {
  return { ...query, like: [], unlike: [], boxes: {} };
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

/** @param {SearchState} a @param {SearchState} b @returns {boolean} whether both are the same search in the same collection */
export function sameSearch(a, b) {
  const filters = [a, b].map(({ filter }) => JSON.stringify(expressionOf(filter)));
  return a.collection === b.collection && sameQuery(a.query, b.query) && filters[0] === filters[1];
}

/** @param {Query} query @returns {QueryBody} the part of it that the service reads as JSON */
export function bodyOf(query) {
  const { text, picture, like, unlike, boxes, likeness, words, group, sort } = query;
  const examples = (ids) => ids.map((id) => ({ id, ...(boxes[id] && { box: boxes[id] }) }));
  return {
    ...(text && likeness && { text }),
    ...(text && words && { keywords: text }),
    ...(picture?.box && { image_boxes: [picture.box] }),
    ...(like.length > 0 && { like: examples(like) }),
    ...(unlike.length > 0 && { unlike: examples(unlike) }),
    ...(group && { group_by: group }),
    ...(sort && isUnranked(query) && { sort }),
  };
}

/** @param {Query} query @returns {object | null} what the service keeps of it with a judgement; null where there is nothing to learn from */
export function judgedOf(query) {
  const { keywords, group_by: group, ...judged } = bodyOf(query);
  const whole = query.picture === null && Object.keys(query.boxes).length === 0;
  return whole && (judged.text || judged.like) ? judged : null;
}

/** The search service over HTTP. */

import { folderOf, sentJson } from '../shared/http.js';
import { showPicture } from '../shared/picture.js';
import { Session } from '../shared/session.js';
import { expressionOf } from './query/filter.js';
import { bodyOf } from './query/query.js';

const PAGE_SIZE = 24;

/**
 * @typedef {{number: number, model: string, digest: string}} Generation
 * @typedef {{name: string, count: number, generation: Generation | null}} CollectionSummary
 * @typedef {{value: string | number | boolean, count: number}} FieldValue
 * @typedef {{name: string, kinds: Array<'text' | 'number' | 'boolean' | 'date'>, values: FieldValue[], distinct: number,
 *   minimum: number | string | null, maximum: number | string | null, date_shifted?: boolean | null}} Field `values` holds the most frequent of `distinct` values
 * @typedef {import('./query/finding-controls.js').CountedFinding} CountedFinding
 * @typedef {CollectionSummary & {fields: Field[], regions?: boolean, findings?: CountedFinding[], hidden_fields: string[], examples: Array<{id: string, text: string}>}} Collection
 * @typedef {{image: string, thumbnail: string}} HitLinks
 * @typedef {{text: string, spans: Array<[number, number]>}} Matched a text with the positions of words in it, in code points
 * @typedef {{id: string, rank: number, score: number | null, score_kind: string | null, cosine: number | null, cosine_kind: string | null,
 *   z_score: number | null, found_by: Array<'vector' | 'keywords' | 'findings'>, matched: Matched | null, group: string | null, group_size: number | null,
 *   texts: string[], labels: string[], findings?: Record<import('./query/filter.js').State, string[]>, metadata: Record<string, unknown>, links: HitLinks}} Hit
 * @typedef {{id: string, name: string, images: number}} CaseList
 * @typedef {{field: string, tokens: number, kept: number, searched_text: string}} Truncation
 * @typedef {{hits: Hit[], confident: boolean | null, count: number | null, next_cursor: string | null,
 *   query: {limit: number, filter: object | null, truncations: Truncation[]}, unknown_keywords?: string[],
 *   served_by: {collection: string, generation: number, model: string, digest: string, exact: boolean} | null,
 *   took_ms: {encode: number, search: number, total: number}}} HitPage
 * @typedef {import('./query/query.js').QueryBody & {limit: number, filter: object | null, cursor: string | null}} SearchQuery
 */

export class SearchApi {
  /** @param {string | URL} base address of the service @param {string | null} [token] a key or a token of the caller */
  constructor(base, token = null) {
    this.base = folderOf(base);
    this.session = new Session(this.base);
    this.session.token = token;
  }

  /** Show a picture. @param {HTMLImageElement} element @param {string} link */
  picture(element, link) {
    showPicture(element, this.resolve(link), this.session);
  }

  /** @param {string} link a link from an answer @returns {string} */
  resolve(link) {
    return new URL(link, this.base).href;
  }

  /** @param {AbortSignal} [signal] @returns {Promise<CollectionSummary[]>} */
  async collections(signal) {
    const answer = await this.#ask('v1/collections', { signal });
    return answer.collections;
  }

  /** @param {string} name @param {AbortSignal} [signal] @returns {Promise<Collection>} */
  collection(name, signal) {
    return this.#ask(path(name), { signal });
  }

  /**
   * @param {string} collection @param {SearchQuery} query @param {Blob[]} images files to search for
   * @param {AbortSignal} signal
   * @returns {Promise<HitPage>}
   */
  search(collection, query, images, signal) {
    return this.#ask(`${path(collection)}/search`, { ...sentSearch(query, images), signal });
  }

  /**
   * @param {import('./query/query.js').SearchState} state @param {string | null} cursor of the page before @param {AbortSignal} signal
   * @returns {Promise<HitPage>}
   */
  page({ collection, query, filter }, cursor, signal) {
    const body = { ...bodyOf(query), limit: PAGE_SIZE, filter: expressionOf(filter), cursor: cursor ?? true };
    return this.search(collection, body, query.picture ? [query.picture.file] : [], signal);
  }

  /**
   * What matched: a picture to overlay on an image, more opaque where it matches the query more.
   *
   * @param {string} collection @param {string} id @param {object} query @param {Blob[]} images @param {AbortSignal} signal
   * @returns {Promise<Blob>}
   */
  async overlay(collection, id, query, images, signal) {
    const { headers, ...sent } = sentSearch(query, images);
    const answer = await this.session.fetch(this.resolve(`${imagePath(collection, id)}/similarity-map`), { ...sent, headers: { ...headers, Accept: 'image/png' }, signal });
    return answer.blob();
  }

  /**
   * Count the values of fields among the images that pass a filter, and have keywords.
   *
   * @param {string} collection
   * @param {{filter?: object | null, field?: string, containing?: string, keywords?: string}} question
   * @param {AbortSignal} [signal]
   * @returns {Promise<{count: number, fields: Field[], findings?: CountedFinding[]}>}
   */
  facets(collection, { filter = null, field, containing, keywords }, signal) {
    return this.#ask(`${path(collection)}/facets`, { ...sentJson({ filter, field: field ?? null, containing: containing ?? '', keywords: keywords ?? null }), signal });
  }

  /** Say whether a hit is what was searched for. @param {string} collection @param {object} judgement */
  judge(collection, judgement) {
    return this.#ask(`${path(collection)}/feedback`, sentJson(judgement));
  }

  /** @param {string} collection @returns {Promise<CaseList[]>} the lists of cases of a collection */
  async caseLists(collection) {
    return (await this.#ask(`${path(collection)}/cases`, {})).lists;
  }

  /** Begin or rename a list of cases. @param {string} collection @param {string} list @param {string} name @returns {Promise<CaseList>} */
  putCaseList(collection, list, name) {
    return this.#ask(`${path(collection)}/cases/${encodeURIComponent(list)}`, { ...sentJson({ name }), method: 'PUT' });
  }

  /** @param {string} collection @param {string} list @param {string} id @param {{note?: string}} change without a note, an existing one stays */
  saveCase(collection, list, id, change) {
    return this.#ask(`${path(collection)}/cases/${encodeURIComponent(list)}/images/${encodeURIComponent(id)}`, { ...sentJson(change), method: 'PUT' });
  }

  /** @param {string} collection @param {string} id @param {AbortSignal} [signal] */
  image(collection, id, signal) {
    return this.#ask(imagePath(collection, id), { signal });
  }

  /** @param {string} collection @param {string} id @returns {string} */
  contentAddress(collection, id) {
    return this.resolve(`${imagePath(collection, id)}/content`);
  }

  /** @param {string} collection @param {string} id @param {AbortSignal} [signal] @returns {Promise<import('./image/window-control.js').GreyLevels>} */
  levels(collection, id, signal) {
    return this.#ask(`${imagePath(collection, id)}/levels`, { signal });
  }

  /** A picture of the image that the browser shows, for files of all formats. @param {string} collection @param {string} id @returns {string} */
  renditionAddress(collection, id) {
    return this.resolve(`${imagePath(collection, id)}/rendition`);
  }

  /** @param {string} collection @param {string} id @returns {string} */
  thumbnailAddress(collection, id) {
    return this.resolve(`${imagePath(collection, id)}/thumbnail`);
  }

  /** @param {string} address @param {RequestInit} options @returns {Promise<any>} */
  #ask(address, options) {
    return this.session.fetchJson(this.resolve(address), options);
  }
}

/** @param {object} query @param {Blob[]} images @returns {RequestInit} JSON, or a form where there are images */
function sentSearch(query, images) {
  if (images.length === 0) return sentJson(query);
  const body = new FormData();
  body.set('query', JSON.stringify(query));
  for (const image of images) body.append('image', image, image instanceof File ? image.name : 'image');
  return { method: 'POST', body };
}

/** @param {string} collection */
function path(collection) {
  return `v1/collections/${encodeURIComponent(collection)}`;
}

/** @param {string} collection @param {string} id */
function imagePath(collection, id) {
  return `${path(collection)}/images/${encodeURIComponent(id)}`;
}

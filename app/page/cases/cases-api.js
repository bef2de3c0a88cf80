/** Case lists over HTTP. */

import { showPicture } from '../shared/picture.js';
import { Session } from '../shared/session.js';

/**
 * @typedef {{id: string, name: string, images: number, created: string}} CaseList
 * @typedef {{id: string, group: string | null, metadata: Record<string, unknown>, links: {image: string, thumbnail: string}}} ListedImage
 * @typedef {{image: ListedImage, note: string, saved: string, saved_by: string | null}} SavedCase
 * @typedef {CaseList & {cases: SavedCase[], next_cursor: string | null}} CasePage
 */

const PAGE_SIZE = 24;

export class CasesApi {
  /** @param {string | URL} base address of the service @param {string | null} token a key or a token of the caller */
  constructor(base, token) {
    this.base = new URL(base, document.baseURI);
    this.session = new Session(this.base);
    this.session.token = token;
  }

  /** @param {string} collection @param {AbortSignal} signal @returns {Promise<CaseList[]>} */
  async lists(collection, signal) {
    await this.session.known();
    return (await this.#ask(casesPath(collection), { signal })).lists;
  }

  /** @param {string} collection @param {string} list @param {string | null} cursor @param {AbortSignal} signal @returns {Promise<CasePage>} */
  page(collection, list, cursor, signal) {
    const wanted = new URLSearchParams({ limit: String(PAGE_SIZE), ...(cursor !== null && { cursor }) });
    return this.#ask(`${listPath(collection, list)}?${wanted}`, { signal });
  }

  /** Fields of a collection that are not shown. @param {string} collection @param {AbortSignal} signal @returns {Promise<Set<string>>} */
  async hidden(collection, signal) {
    const { hidden_fields: hidden } = await this.#ask(collectionPath(collection), { signal });
    return new Set(hidden);
  }

  /** @param {string} collection @param {string} list */
  removeList(collection, list) {
    return this.#ask(listPath(collection, list), { method: 'DELETE' });
  }

  /** @param {string} collection @param {string} list @param {string} id */
  takeOut(collection, list, id) {
    return this.#ask(`${listPath(collection, list)}/images/${encodeURIComponent(id)}`, { method: 'DELETE' });
  }

  /** Address of the teaching file; null: a page of another origin brings no session. @param {string} collection @param {string} list @returns {string | null} */
  exportAddress(collection, list) {
    return this.session.token === null ? this.resolve(`${listPath(collection, list)}/export`) : null;
  }

  /** @param {HTMLImageElement} element @param {string} link */
  picture(element, link) {
    showPicture(element, this.resolve(link), this.session);
  }

  /** @param {string} link @returns {string} */
  resolve(link) {
    return new URL(link, this.base).href;
  }

  /** @param {string} address @param {RequestInit} options @returns {Promise<any>} */
  #ask(address, options) {
    return this.session.fetchJson(this.resolve(address), options);
  }
}

/** @param {string} collection */
function collectionPath(collection) {
  return `v1/collections/${encodeURIComponent(collection)}`;
}

/** @param {string} collection */
function casesPath(collection) {
  return `${collectionPath(collection)}/cases`;
}

/** @param {string} collection @param {string} list */
function listPath(collection, list) {
  return `${casesPath(collection)}/${encodeURIComponent(list)}`;
}

/** Case lists over HTTP. */

import { folderOf, sentJson } from '../shared/http.js';
import { showPicture } from '../shared/picture.js';
import { Session } from '../shared/session.js';

/**
 * @typedef {{id: string, name: string, images: number, created: string, etag: string}} CaseList
 * @typedef {{id: string, group: string | null, metadata: Record<string, unknown>, links: {image: string, thumbnail: string}}} ListedImage
 * @typedef {{note: string, saved: string, saved_by: string | null, etag: string}} Note
 * @typedef {Note & {image: ListedImage}} SavedCase
 * @typedef {CaseList & {cases: SavedCase[], next_cursor: string | null}} CasePage
 */

const PAGE_SIZE = 24;

export class CasesApi {
  /** @param {string | URL} base address of the service @param {string | null} token a key or a token of the caller */
  constructor(base, token) {
    this.base = folderOf(base);
    this.session = new Session(this.base);
    this.session.token = token;
  }

  /** @param {string} collection @param {AbortSignal} signal @returns {Promise<CaseList[]>} */
  async lists(collection, signal) {
    await this.session.ready();
    return (await this.#ask(casesPath(collection), { signal })).lists;
  }

  /** @param {string} collection @param {string} list @param {string | null} cursor @param {AbortSignal} signal @returns {Promise<CasePage>} */
  page(collection, list, cursor, signal) {
    const parameters = new URLSearchParams({ limit: String(PAGE_SIZE), ...(cursor !== null && { cursor }) });
    return this.#ask(`${listPath(collection, list)}?${parameters}`, { signal });
  }

  /** Fields of a collection that are not shown. @param {string} collection @param {AbortSignal} signal @returns {Promise<Set<string>>} */
  async hidden(collection, signal) {
    const { hidden_fields: hidden } = await this.#ask(collectionPath(collection), { signal });
    return new Set(hidden);
  }

  /** Give a list another name. @param {string} collection @param {CaseList} list as it was read @param {string} name */
  rename(collection, { id, etag }, name) {
    return this.#change(listPath(collection, id), { name }, etag);
  }

  /** @param {string} collection @param {string} list @param {SavedCase} saved as it was read @param {string} note @returns {Promise<Note>} */
  writeNote(collection, list, { image, etag }, note) {
    return this.#change(casePath(collection, list, image.id), { note }, etag);
  }

  /** @param {string} collection @param {string} list */
  removeList(collection, list) {
    return this.#ask(listPath(collection, list), { method: 'DELETE' });
  }

  /** @param {string} collection @param {string} list @param {string} id */
  takeOut(collection, list, id) {
    return this.#ask(casePath(collection, list, id), { method: 'DELETE' });
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

  /** Change what nobody else has changed meanwhile. @param {string} address @param {object} body @param {string} etag @returns {Promise<any>} */
  #change(address, body, etag) {
    const sent = sentJson(body);
    return this.#ask(address, { ...sent, method: 'PUT', headers: { ...sent.headers, 'If-Match': etag } });
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

/** @param {string} collection @param {string} list @param {string} id of the image */
function casePath(collection, list, id) {
  return `${listPath(collection, list)}/images/${encodeURIComponent(id)}`;
}

/** An element that asks a service and tells the page around what becomes of it. */

import { SearchApi } from './api.js';

/** @typedef {import('./api.js').Hit} Hit */

export class ServiceElement extends HTMLElement {
  /** @type {string | null} */
  #token = null;

  /** A key or a token that each request brings; pages of other origins have no session. @param {string | null} token */
  set token(token) {
    this.#token = token;
    this.makeApi();
    if (this.isConnected) this.begin();
  }

  makeApi() {
    this.api = new SearchApi(this.getAttribute('src') ?? new URL('../..', import.meta.url), this.#token);
  }

  /** Ask the service from the beginning. */
  begin() {}

  /** Tell the page around; false: it does the rest. @param {string} name @param {object} detail */
  tell(name, detail) {
    return this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true, cancelable: name === 'image-select' }));
  }

  /** An image as the page around is told of it. @param {Hit} hit @param {string} collection */
  told(hit, collection) {
    const links = Object.fromEntries(Object.entries(hit.links).map(([name, link]) => [name, this.api.resolve(link)]));
    return { ...hit, collection, links };
  }
}

/** An element that asks a service and tells the page around what becomes of it. */

import { language, speakAt } from '../shared/words.js';
import { SearchApi } from './api.js';

/** @typedef {import('./api.js').Hit} Hit */

export class ServiceElement extends HTMLElement {
  /** @type {string | null} */
  #token = null;
  #built = false;

  constructor() {
    super();
    this.attachShadow({ mode: 'open' });
  }

  /** Attributes, and elements around, choose the language: there are none before the element is in a page. */
  connectedCallback() {
    if (this.#built) return;
    this.#built = true;
    speakAt(this);
    this.build(this.shadowRoot);
    for (const part of this.shadowRoot.children) part.lang = language();
  }

  /** Fill the shadow tree, once. @param {ShadowRoot} root */
  build(root) {}

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

  /** An image as events describe it to the surrounding page. @param {Hit} hit @param {string} collection */
  described(hit, collection) {
    const links = Object.fromEntries(Object.entries(hit.links).map(([name, link]) => [name, this.api.resolve(link)]));
    return { ...hit, collection, links };
  }
}

/** Who is signed in at the service that the page comes from: the browser keeps the cookie, no script sees it. */

import { fetchAnswer, ProblemError } from './http.js';

/**
 * @typedef {{kind: 'anonymous' | 'key' | 'token' | 'session', name: string | null, roles: Record<string, string[]>, open_reading: boolean,
 *   expires: string | null, csrf_token: string | null}} SessionState
 */

const READING = ['GET', 'HEAD'];
const FORGED = 'urn:recoquest:csrf-token-needed';

export class Session {
  /** @type {SessionState | null} */
  #state = null;
  /** @type {Promise<void> | null} */
  #looking = null;
  #address;

  /** @param {URL} base address of the service */
  constructor(base) {
    this.#address = new URL('v1/session', base).href;
    /** A page of another origin has no cookie of the service. */
    this.isOwn = new URL(base).origin === location.origin;
  }

  /** Name of whoever signed in; null: nobody. @returns {string | null} */
  get name() {
    return this.#state?.kind === 'session' ? this.#state.name : null;
  }

  /** Whether it is known that nothing will be answered before somebody signs in. */
  get needsKey() {
    return this.#state?.kind === 'anonymous' && !this.#state.open_reading;
  }

  /** Find out who is signed in, once. */
  async known() {
    if (!this.isOwn || this.#state !== null) return;
    this.#looking ??= this.#look().finally(() => { this.#looking = null; });
    await this.#looking;
  }

  /** @param {string} key a key, or a token of an identity provider */
  async signIn(key) {
    // A header takes bytes, one a character; the service compares those of UTF-8.
    const bytes = String.fromCharCode(...new TextEncoder().encode(key));
    const answer = await fetchAnswer(this.#address, { method: 'POST', headers: { Authorization: `Bearer ${bytes}` } });
    this.#state = await answer.json();
  }

  async signOut() {
    await this.fetch(this.#address, { method: 'DELETE' });
    await this.#look();
  }

  /** The session has ended: whoever signs in next is asked for. */
  end() {
    if (this.#state !== null) this.#state = { ...this.#state, kind: 'anonymous', name: null, csrf_token: null };
  }

  /**
   * Ask the service, with the token that shows where the question comes from.
   *
   * @param {string} address @param {RequestInit} [options] @returns {Promise<Response>} an answer that is no problem
   */
  async fetch(address, options = {}) {
    try {
      return await fetchAnswer(address, this.#signed(options));
    } catch (error) {
      if (!(error instanceof ProblemError) || error.type !== FORGED) throw error;
      // Somebody has signed in again in another tab.
      await this.#look();
      return fetchAnswer(address, this.#signed(options));
    }
  }

  /** @param {string} address @param {RequestInit} [options] @returns {Promise<any>} */
  async fetchJson(address, options) {
    return (await this.fetch(address, options)).json();
  }

  async #look() {
    this.#state = await (await fetchAnswer(this.#address)).json();
  }

  /** @param {RequestInit} options @returns {RequestInit} */
  #signed(options) {
    const token = this.#state?.csrf_token;
    if (!token || READING.includes(options.method ?? 'GET')) return options;
    return { ...options, headers: { ...options.headers, 'X-CSRF-Token': token } };
  }
}

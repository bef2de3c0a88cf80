/** Who is signed in at the service that the page comes from: the browser keeps the cookie, no script sees it. */

import { fetchAnswer, ProblemError } from './http.js';

/**
 * @typedef {{kind: 'anonymous' | 'key' | 'token' | 'session', name: string | null, roles: Record<string, string[]>, open_reading: boolean,
 *   expires: string | null, csrf_token: string | null, provider_sign_in: boolean, provider_sign_out: string | null}} SessionState
 */

const READING = ['GET', 'HEAD'];
const FORGED = 'urn:recoquest:csrf-token-needed';

export class Session {
  /** @type {SessionState | null} */
  #state = null;
  /** @type {Promise<void> | null} */
  #looking = null;
  #address;
  /** A key or a token that each request sends, instead of a session. @type {string | null} */
  token = null;
  /** Page of the identity provider that ends its own session, for users who have signed out here. @type {string | null} */
  leftProvider = null;

  /** @param {URL} base address of the service */
  constructor(base) {
    this.#address = new URL('v1/session', base).href;
    /** A page of another origin has no cookie of the service. */
    this.isOwn = new URL(base).origin === location.origin;
  }

  /** Name of the signed-in user; null: nobody. @returns {string | null} */
  get name() {
    return this.#state?.kind === 'session' ? this.#state.name : null;
  }

  /** Whether the service answers nothing until somebody signs in. */
  get needsKey() {
    return this.#state?.kind === 'anonymous' && !this.#state.open_reading;
  }

  /** Whether somebody is signed in whom no role lets do anything. */
  get hasNoRole() {
    return this.name !== null && Object.keys(this.#state?.roles ?? {}).length === 0;
  }

  /** Where people sign in at the organisation's own page, to come back to this one; null: nowhere. @returns {string | null} */
  get signInAddress() {
    if (!this.#state?.provider_sign_in) return null;
    return `${this.#address}/begin?${new URLSearchParams({ return_to: location.pathname })}`;
  }

  /** Find out who is signed in, once. */
  async ready() {
    if ((!this.isOwn && this.token === null) || this.#state !== null) return;
    this.#looking ??= this.#look().finally(() => { this.#looking = null; });
    await this.#looking;
  }

  /** @param {string} key a key, or a token of an identity provider */
  async signIn(key) {
    const answer = await fetchAnswer(this.#address, { method: 'POST', headers: bearer(key) });
    this.#state = await answer.json();
    this.leftProvider = null;
  }

  async signOut() {
    const leaves = this.#state?.provider_sign_out ?? null;
    await this.fetch(this.#address, { method: 'DELETE' });
    this.leftProvider = leaves;
    await this.#look();
  }

  /** The session has ended: ask for a sign-in. */
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
    this.#state = await (await fetchAnswer(this.#address, this.#signed({}))).json();
  }

  /** @param {RequestInit} options @returns {RequestInit} */
  #signed(options) {
    if (this.token !== null) return { ...options, headers: { ...options.headers, ...bearer(this.token) } };
    const token = this.#state?.csrf_token;
    if (!token || READING.includes(options.method ?? 'GET')) return options;
    return { ...options, headers: { ...options.headers, 'X-CSRF-Token': token } };
  }
}

/** @param {string} key */
function bearer(key) {
  // A header takes bytes, one a character; the service compares those of UTF-8.
  return { Authorization: `Bearer ${String.fromCharCode(...new TextEncoder().encode(key))}` };
}

/** The pages of one search: another search ends the one before, whose answers no longer count. */

/** @typedef {import('../api.js').HitPage} HitPage */

export class ResultPages {
  /** @type {string | null} */
  #cursor = null;
  /** @type {AbortController | null} */
  #request = null;

  /** @param {(cursor: string | null, signal: AbortSignal) => Promise<HitPage>} ask */
  constructor(ask) {
    this.ask = ask;
  }

  /** End the search under way. */
  stop() {
    this.#request?.abort();
    this.#request = null;
  }

  /** Begin a search. @param {(page: HitPage) => void} show @param {(error: unknown) => void} fail */
  first(show, fail) {
    this.stop();
    this.#request = new AbortController();
    this.#cursor = null;
    return this.next(show, fail);
  }

  /** Go on behind the last page. @param {(page: HitPage) => void} show @param {(error: unknown) => void} fail called for errors of `show` as well */
  async next(show, fail) {
    const request = this.#request;
    try {
      const page = await this.ask(this.#cursor, request.signal);
      if (request !== this.#request) return;
      this.#cursor = page.next_cursor;
      show(page);
    } catch (error) {
      if (request === this.#request) fail(error);
    }
  }
}

/** What the reader says of hits: the service keeps it to learn from, the tab to show it. */

import { judgedOf } from '../query/query.js';
import { Said } from './said.js';

/** @typedef {import('../query/query.js').Query} Query */

export class Judgements {
  #said = new Said();
  /** @type {string | null} */
  #service = null;
  /** @type {string | null} */
  #collection = null;
  /** @type {object | null} */
  #query = null;
  #last = Promise.resolve();

  /**
   * @param {{send: (collection: string, judgement: object) => Promise<unknown>, changed: (id: string) => void,
   *   refused: (error: unknown) => void}} actions
   */
  constructor(actions) {
    this.actions = actions;
  }

  /** Say what the hits that are shown were found by. @param {string} service its address @param {string} collection @param {Query} query */
  found(service, collection, query) {
    this.#service = service;
    this.#collection = collection;
    this.#query = judgedOf(query);
  }

  /** Whether anything can be said of the hits that are shown. */
  get taken() {
    return this.#query !== null;
  }

  /** @param {string} id @returns {boolean | null} whether the hit is what was searched for; null: nothing was said */
  of(id) {
    return this.#said.get(this.#key(id));
  }

  /** Say it; said twice, it is taken back. @param {string} id @param {boolean} relevant */
  async say(id, relevant) {
    const key = this.#key(id);
    const before = this.of(id);
    const now = relevant === before ? null : relevant;
    this.#said.set(key, now);
    this.actions.changed(id);
    const judgement = { query: this.#query, hit: id, relevant: now };
    const collection = this.#collection;
    // One after the other: the last one counts.
    const sent = this.#last.then(() => this.actions.send(collection, judgement));
    this.#last = sent.catch(() => undefined);
    try {
      await sent;
    } catch (error) {
      if (this.#said.get(key) === now) this.#said.set(key, before);
      this.actions.changed(id);
      this.actions.refused(error);
    }
  }

  /** @param {string} id */
  #key(id) {
    return JSON.stringify([this.#service, this.#collection, this.#query, id]);
  }
}

/** What the reader says of hits: the service keeps it to learn from, the tab to show it. */

import { judgedOf } from '../query/query.js';
import { StoredJudgements } from './stored-judgements.js';

/** @typedef {import('../query/query.js').Query} Query */

export class Judgements {
  #stored = new StoredJudgements();
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

  /** Set the query of the shown hits. @param {string} service its address @param {string} collection @param {Query} query */
  startFor(service, collection, query) {
    this.#service = service;
    this.#collection = collection;
    this.#query = judgedOf(query);
  }

  /** Whether the shown hits can be judged. */
  get taken() {
    return this.#query !== null;
  }

  /** @param {string} id @returns {boolean | null} whether the hit was judged relevant; null: not judged */
  of(id) {
    return this.#stored.get(this.#key(id));
  }

  /** Judge a hit; the same judgement twice removes it. @param {string} id @param {boolean} relevant */
  async say(id, relevant) {
    const key = this.#key(id);
    const before = this.of(id);
    const now = relevant === before ? null : relevant;
    this.#stored.set(key, now);
    this.actions.changed(id);
    const judgement = { query: this.#query, hit: id, relevant: now };
    const collection = this.#collection;
    // One after the other: the last one counts.
    const sent = this.#last.then(() => this.actions.send(collection, judgement));
    this.#last = sent.catch(() => undefined);
    try {
      await sent;
    } catch (error) {
      if (this.#stored.get(key) === now) this.#stored.set(key, before);
      this.actions.changed(id);
      this.actions.refused(error);
    }
  }

  /** @param {string} id */
  #key(id) {
    return JSON.stringify([this.#service, this.#collection, this.#query, id]);
  }
}

/** What an operator sees and does over HTTP: models, generations, jobs. */

import { sentJson } from '../shared/http.js';

/**
 * @typedef {{queries: number, active: Record<string, number>, new: Record<string, number>, overlap: number}} TextComparison
 * @typedef {{held_out: string, against: number, candidates: number, text_to_image: TextComparison | null}} Comparison
 * @typedef {{number: number, state: 'building' | 'active' | 'retired', model: string, digest: string, images: number, texts: number,
 *   missing: number, created: string | null, activated: string | null, comparison: Comparison | null}} Generation
 * @typedef {{name: string, count: number, generations: Generation[]}} Collection the latest generation first
 * @typedef {{name: string, digest: string, dim: number, score_kind: string, metrics: Record<string, number>, created: string,
 *   loaded: boolean, collections: string[]}} Model
 * @typedef {{metric: string, before: number, after: number, held_out: string, images: number, passed: boolean, verdict: string | null}} ModelVerdict
 * @typedef {Model & {towers: Record<string, string> | null,
 *   training: {recipe: string, description: string, objective: string, started_from: string | null, epochs: number | null,
 *     steps: number | null, batch_size: number, seed: number} | null,
 *   retraining: {job: number, collection: string, verdict: string, judgement: ModelVerdict | null} | null,
 *   generations: Array<Generation & {collection: string}>}} ModelCard
 * @typedef {{id: number, kind: string, arguments: string[], state: 'queued' | 'running' | 'done' | 'failed' | 'cancelled',
 *   cancelling: boolean, created: string, started: string | null, ended: string | null, worker: string | null, attempts: number,
 *   progress: {what: string, done: number, total: number | null, note: string} | null, result: Record<string, any> | null,
 *   error: string | null}} Job
 * @typedef {{collection: string, number: number, model: string, digest: string}} Activated
 */

const MOST_JOBS = 20;

export class OperatorApi {
  /** @param {URL} base address of the service @param {import('../shared/session.js').Session} session */
  constructor(base, session) {
    this.base = base;
    this.session = session;
  }

  /** @returns {Promise<Model[]>} */
  async models() {
    return (await this.#ask('v1/models')).models;
  }

  /** @param {string} digest @returns {Promise<ModelCard>} */
  card(digest) {
    return this.#ask(`v1/models/${digest}`);
  }

  /** @returns {Promise<Collection[]>} */
  async collections() {
    const { collections } = await this.#ask('v1/collections');
    return Promise.all(collections.map(async ({ name, count }) => ({ name, count, ...(await this.#ask(`${path(name)}/generations`)) })));
  }

  /** @returns {Promise<{jobs: Job[], workers: number}>} the latest first, and how many workers are there */
  jobs() {
    return this.#ask(`v1/jobs?limit=${MOST_JOBS}`);
  }

  /** @param {string} collection @param {number} number @returns {Promise<Activated>} */
  activate(collection, number) {
    return this.#ask(`${path(collection)}/generations/${number}/activate`, { method: 'POST' });
  }

  /** @param {string} collection @returns {Promise<Activated>} */
  rollBack(collection) {
    return this.#ask(`${path(collection)}/rollback`, { method: 'POST' });
  }

  /** @param {object} job @returns {Promise<Job>} */
  give(job) {
    return this.#ask('v1/jobs', sentJson(job));
  }

  /** @param {number} number @returns {Promise<Job>} */
  cancel(number) {
    return this.#ask(`v1/jobs/${number}/cancel`, { method: 'POST' });
  }

  /**
   * The job now and after every change, until it has ended. An EventSource would hide the problem where there is one.
   *
   * @param {number} number @param {AbortSignal} signal @returns {AsyncGenerator<Job>}
   */
  async *follow(number, signal) {
    const headers = { Accept: 'text/event-stream' };
    const answer = await this.session.fetch(new URL(`v1/jobs/${number}/events`, this.base).href, { headers, signal });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let unread = '';
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const events = (unread + part.value).split('\n\n');
      unread = events.pop();
      for (const event of events) {
        const lines = event.split('\n');
        const data = lines.find((line) => line.startsWith('data: '));
        if (data && lines.includes('event: job')) yield JSON.parse(data.slice('data: '.length));
      }
    }
  }

  /** @param {string} address @param {RequestInit} [options] @returns {Promise<any>} */
  #ask(address, options) {
    return this.session.fetchJson(new URL(address, this.base).href, options);
  }
}

/** @param {string} collection */
function path(collection) {
  return `v1/collections/${encodeURIComponent(collection)}`;
}

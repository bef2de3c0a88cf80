/** Similar cases and judgements over HTTP. */

import { sentJson } from '../shared/http.js';

/**
 * @typedef {{study: string, series: string, sop: string | null, frame: number | null, date: string, patient: {name: string, id: string}}} ActiveImage
 * @typedef {{text: string, start: number | null, end: number | null, prior: boolean}} Sentence
 * @typedef {{image: string, thumbnail: string, rendition: string, report: string | null, viewer: string | null}} CaseLinks
 * @typedef {{id: string, rank: number, score: number, query_image: string, images: number, study: string | null, series: string | null,
 *   sop: string | null, view: string | null, modality: string | null, date: string | null, date_shifted: boolean | null, days: number | null, age_band: string | null,
 *   sex: string | null, same_patient: boolean | null, findings: {present: string[]}, sentence: Sentence | null, links: CaseLinks}} Case
 * @typedef {{path: string}} IndexNow
 * @typedef {{id: number, state: 'queued' | 'running' | 'done' | 'failed' | 'cancelled', error: string | null}} Job
 * @typedef {{path: string, forms: string[]}} WriteBack
 * @typedef {{objects: {form: string, status: 'stored' | 'refused', reason: string | null}[]}} Written
 * @typedef {{state: 'indexed' | 'not_indexed', collection: string | null, collections: string[], images: Array<{id: string, date: string | null}>, hits: Case[], index_now: IndexNow | null,
 *   write_back: WriteBack | null}} Cases
 * @typedef {{image: ActiveImage, cases: Cases}} Answer similar cases, and the image of the request
 */

export class CasesApi {
  /** @param {URL} base address of the service @param {import('../shared/session.js').Session} session */
  constructor(base, session) {
    this.base = base;
    this.session = session;
  }

  /**
   * @param {ActiveImage} image @param {string | null} collection null: the service chooses one @param {boolean} samePatient
   * @param {AbortSignal} signal @returns {Promise<Cases>}
   */
  similar(image, collection, samePatient, signal) {
    const prefix = collection === null ? '' : `/collections/${encodeURIComponent(collection)}`;
    const one = image.sop === null ? '' : `/instances/${encodeURIComponent(image.sop)}`;
    const parameters = new URLSearchParams({ limit: '20', same_patient: String(samePatient) });
    if (image.sop !== null && image.frame !== null) parameters.set('frame', String(image.frame));
    return this.#ask(`v1${prefix}/studies/${encodeURIComponent(image.study)}${one}/similar?${parameters}`, { signal });
  }

  /**
   * Say whether a case is like the image; a case that was not a hit supplements the others.
   *
   * @param {string} collection @param {string} image @param {string} hit @param {boolean | null} relevant @param {boolean} [missed]
   */
  judge(collection, image, hit, relevant, missed = false) {
    const body = { query: { like: [{ id: image }] }, hit, relevant, missed };
    return this.#ask(`v1/collections/${encodeURIComponent(collection)}/feedback`, sentJson(body));
  }

  /** Begin a job that brings a study into a collection. @param {IndexNow} request @returns {Promise<Job>} */
  begin({ path }) {
    return this.#ask(path, { method: 'POST' });
  }

  /** @param {number} number @returns {Promise<Job>} */
  job(number) {
    return this.#ask(`v1/jobs/${number}`, {});
  }

  /** Write cases back to the archive; sent again with its key, it is done once. @param {string} path @param {object} body @param {string} key @returns {Promise<Written>} */
  writeBack(path, body, key) {
    const sent = sentJson(body);
    return this.#ask(path, { ...sent, headers: { ...sent.headers, 'Idempotency-Key': key } });
  }

  /** @param {string} link @returns {string} */
  resolve(link) {
    return new URL(link, this.base).href;
  }

  /** @param {string} address @param {RequestInit} options @returns {Promise<any>} */
  #ask(address, options) {
    return this.session.fetchJson(new URL(address, this.base).href, options);
  }
}

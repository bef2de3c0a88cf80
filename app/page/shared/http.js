/** Questions to the service, and the problems that it answers with. */

import { say, term } from './words.js';

const KIND = 'urn:recoquest:';
/** Details of the service are English in every language of the page. */
export const LANGUAGE_OF_DETAILS = 'en';

/** What the service answered instead of a result: a problem document (RFC 9457), or no answer at all. */
export class ProblemError extends Error {
  /** @param {{type?: string, title?: string, status?: number, detail?: string, request_id?: string | null,
   *   errors?: Array<{field: string}>}} problem @param {number | null} [retryAfter] seconds */
  constructor(problem, retryAfter = null) {
    super(problem.detail || problem.title || say('notice.noReason'));
    this.name = 'ProblemError';
    this.type = problem.type ?? null;
    this.title = term(`problem.${this.type?.replace(KIND, '')}`, problem.title || say('notice.failed'));
    this.status = problem.status ?? 0;
    this.detail = this.message;
    /** Language of the detail; null: that of the page. */
    this.lang = this.status > 0 && problem.detail ? LANGUAGE_OF_DETAILS : null;
    this.fields = (problem.errors ?? []).map(({ field }) => field);
    this.requestId = problem.request_id ?? null;
    this.retryAfter = retryAfter;
  }
}

/** The address of a service, below which its paths are. @param {string | URL} base @returns {URL} */
export function folderOf(base) {
  const address = new URL(base, document.baseURI);
  if (!address.pathname.endsWith('/')) address.pathname += '/';
  return address;
}

/**
 * @param {string} address @param {RequestInit} [options]
 * @returns {Promise<Response>} an answer that is no problem
 */
export async function fetchAnswer(address, options = {}) {
  let response;
  try {
    response = await fetch(address, { ...options, headers: { Accept: 'application/json', ...options.headers } });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ProblemError({ title: say('notice.offline'), status: 0, detail: say('notice.offlineWhy') });
  }
  if (response.ok) return response;
  throw await problemOf(response);
}

/** @param {string} address @param {RequestInit} [options] @returns {Promise<any>} */
export async function fetchJson(address, options) {
  const response = await fetchAnswer(address, options);
  return response.json();
}

/** @param {object} body @returns {RequestInit} */
export function sentJson(body) {
  return { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) };
}

/** @param {Response} response @returns {Promise<ProblemError>} */
async function problemOf(response) {
  const seconds = Number.parseInt(response.headers.get('Retry-After') ?? '', 10);
  const retryAfter = Number.isFinite(seconds) ? seconds : null;
  const problem = await response.json().catch(() => ({}));
  return new ProblemError({ title: response.statusText, ...problem, status: response.status }, retryAfter);
}

/** @param {unknown} error @returns {ProblemError} how it is described to the user */
export function problemFrom(error) {
  if (error instanceof ProblemError) return error;
  return new ProblemError({ title: say('notice.defect'), detail: error instanceof Error ? error.message : String(error) });
}

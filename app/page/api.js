/** The search service over HTTP. */

/**
 * @typedef {{number: number, model: string, digest: string}} Generation
 * @typedef {{name: string, count: number, generation: Generation | null}} CollectionSummary
 * @typedef {{value: string | number | boolean, count: number}} FieldValue
 * @typedef {{name: string, kinds: Array<'text' | 'number' | 'boolean'>, values: FieldValue[], distinct: number,
 *   minimum: number | null, maximum: number | null}} Field `values` holds the most frequent of `distinct` values
 * @typedef {CollectionSummary & {fields: Field[], examples: Array<{id: string, text: string}>}} Collection
 * @typedef {{image: string, thumbnail: string}} HitLinks
 * @typedef {{id: string, rank: number, score: number, score_kind: string, cosine: number, cosine_kind: string,
 *   unusual: number | null, found_by: Array<'vector' | 'words'>, group: string | null, others: number | null,
 *   texts: string[], labels: string[], metadata: Record<string, unknown>, links: HitLinks}} Hit
 * @typedef {{field: string, tokens: number, kept: number, searched_text: string}} Truncation
 * @typedef {{hits: Hit[], confident: boolean | null, next_cursor: string | null,
 *   query: {k: number, filter: object | null, truncations: Truncation[]},
 *   served_by: {collection: string, generation: number, model: string, digest: string, exact: boolean},
 *   took_ms: {encode: number, search: number, total: number}}} HitPage
 * @typedef {{text?: string, like?: Array<{id: string}>, unlike?: Array<{id: string}>, words?: string, k: number,
 *   filter: object | null, cursor: string | null}} SearchQuery
 */

const OFFLINE = {
  title: 'The service cannot be reached',
  status: 0,
  detail: 'No answer came from the search service. Check the connection, then try again.',
};

/** What the service answered instead of a result: a problem document (RFC 9457), or no answer at all. */
export class ProblemError extends Error {
  /** @param {{title?: string, status?: number, detail?: string, request_id?: string | null,
   *   errors?: Array<{field: string}>}} problem @param {number | null} [retryAfter] seconds */
  constructor(problem, retryAfter = null) {
    super(problem.detail || problem.title || 'The service gave no reason.');
    this.name = 'ProblemError';
    this.title = problem.title || 'The search did not work';
    this.status = problem.status ?? 0;
    this.detail = this.message;
    this.fields = (problem.errors ?? []).map(({ field }) => field);
    this.requestId = problem.request_id ?? null;
    this.retryAfter = retryAfter;
  }
}

export class SearchApi {
  /** @param {string | URL} base address of the service */
  constructor(base) {
    this.base = new URL(base, document.baseURI);
  }

  /** @param {string} link a link from an answer @returns {string} */
  resolve(link) {
    return new URL(link, this.base).href;
  }

  /** @param {AbortSignal} [signal] @returns {Promise<CollectionSummary[]>} */
  async collections(signal) {
    const answer = await this.#ask('v1/collections', { signal });
    return answer.collections;
  }

  /** @param {string} name @param {AbortSignal} [signal] @returns {Promise<Collection>} */
  collection(name, signal) {
    return this.#ask(path(name), { signal });
  }

  /**
   * @param {string} collection @param {SearchQuery} query @param {Blob[]} images files that are examples of what is wanted
   * @param {AbortSignal} signal
   * @returns {Promise<HitPage>}
   */
  search(collection, query, images, signal) {
    const json = JSON.stringify(query);
    const address = `${path(collection)}/search`;
    if (images.length === 0) return this.#ask(address, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: json, signal });
    const body = new FormData();
    body.set('query', json);
    for (const image of images) body.append('image', image, image instanceof File ? image.name : 'image');
    return this.#ask(address, { method: 'POST', body, signal });
  }

  /** Say whether a hit is what was searched for. @param {string} collection @param {object} judgement */
  judge(collection, judgement) {
    return this.#ask(`${path(collection)}/feedback`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(judgement) });
  }

  /** @param {string} collection @param {string} id @param {AbortSignal} [signal] */
  image(collection, id, signal) {
    return this.#ask(imagePath(collection, id), { signal });
  }

  /** @param {string} collection @param {string} id @returns {string} */
  contentAddress(collection, id) {
    return this.resolve(`${imagePath(collection, id)}/content`);
  }

  /** @param {string} collection @param {string} id @returns {string} */
  thumbnailAddress(collection, id) {
    return this.resolve(`${imagePath(collection, id)}/thumbnail`);
  }

  /** @param {string} address @param {RequestInit} options @returns {Promise<any>} */
  async #ask(address, options) {
    let response;
    try {
      response = await fetch(this.resolve(address), { ...options, headers: { Accept: 'application/json', ...options.headers } });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new ProblemError(OFFLINE);
    }
    if (response.ok) return response.json();
    throw await problemOf(response);
  }
}

/** @param {string} collection */
function path(collection) {
  return `v1/collections/${encodeURIComponent(collection)}`;
}

/** @param {string} collection @param {string} id */
function imagePath(collection, id) {
  return `${path(collection)}/images/${encodeURIComponent(id)}`;
}

/** @param {Response} response @returns {Promise<ProblemError>} */
async function problemOf(response) {
  const seconds = Number.parseInt(response.headers.get('Retry-After') ?? '', 10);
  const retryAfter = Number.isFinite(seconds) ? seconds : null;
  const problem = await response.json().catch(() => ({}));
  return new ProblemError({ title: response.statusText, ...problem, status: response.status }, retryAfter);
}

/** @param {unknown} error @returns {ProblemError} what a reader is told of it */
export function problemFrom(error) {
  if (error instanceof ProblemError) return error;
  return new ProblemError({ title: 'The page could not show the answer', detail: error instanceof Error ? error.message : String(error) });
}

/** Films over HTTP: details of one, its grey levels, its picture, and films of the same patient. */

import { ProblemError, sentJson } from '../../shared/http.js';

/**
 * @typedef {{deep: boolean, smallest: number | null, largest: number | null, automatic: import('./grey.js').GreyWindow | null}} GreyLevels
 * @typedef {{id: string, width: number, height: number, media_type: string, group: string | null, metadata: Record<string, unknown>}} FilmRecord
 * @typedef {{id: string, metadata: Record<string, unknown>}} ListedFilm
 * @typedef {{regions: boolean, hidden: ReadonlySet<string>}} Collection `hidden`: fields that are not shown
 */

/** Longest side of a picture that every browser draws. */
const LONGEST_SIDE = 8192;
const MOST_FILMS = 200;
/** Number of retries with a busy service. */
const MOST_TRIES = 4;

export class FilmsApi {
  /** @type {Map<string, Promise<Collection>>} */
  #collections = new Map();

  /** @param {URL} base address of the service @param {import('../../shared/session.js').Session} session */
  constructor(base, session) {
    this.base = base;
    this.session = session;
  }

  /** Properties of a collection that matter for its films; requested once. @param {string} name @returns {Promise<Collection>} */
  collection(name) {
    const cached = this.#collections.get(name) ?? this.#ask(collectionPath(name)).then(({ regions, hidden_fields: hidden }) => ({ regions: regions === true, hidden: new Set(hidden) }));
    this.#collections.set(name, cached);
    cached.catch(() => this.#collections.delete(name));
    return cached;
  }

  /** @param {string} collection @param {string} id @param {AbortSignal} signal @returns {Promise<FilmRecord>} */
  film(collection, id, signal) {
    return this.#ask(filmPath(collection, id), { signal });
  }

  /** @param {string} collection @param {string} id @param {AbortSignal} signal @returns {Promise<GreyLevels>} */
  levels(collection, id, signal) {
    return patiently(() => this.#ask(`${filmPath(collection, id)}/levels`, { signal }), signal);
  }

  /**
   * @param {string} collection @param {FilmRecord} film @param {import('./grey.js').GreyWindow | null} window null: as it is searched @param {AbortSignal} signal
   * @returns {Promise<Blob>} the film in 8 bits, without loss
   */
  picture(collection, film, window, signal) {
    const parameters = new URLSearchParams();
    if (Math.max(film.width, film.height) > LONGEST_SIDE) parameters.set('size', String(LONGEST_SIDE));
    if (window !== null) parameters.set('window', `${window.centre},${window.width}`);
    const address = this.#resolve(`${filmPath(collection, film.id)}/rendition?${parameters}`);
    return patiently(async () => (await this.session.fetch(address, { headers: { Accept: 'image/png' }, signal })).blob(), signal);
  }

  /**
   * @param {string} collection @param {string} field @param {unknown} value @param {AbortSignal} signal
   * @returns {Promise<ListedFilm[]>} films with a value of a field, such as those of a patient
   */
  async filmsWith(collection, field, value, signal) {
    const body = { filter: { field, eq: value }, limit: MOST_FILMS, with: ['metadata'] };
    const { hits } = await this.#ask(`${collectionPath(collection)}/search`, { ...sentJson(body), signal });
    return hits;
  }

  /** @param {string} collection @param {string} id @returns {string} */
  thumbnailAddress(collection, id) {
    return this.#resolve(`${filmPath(collection, id)}/thumbnail`);
  }

  /** @param {string} path */
  #resolve(path) {
    return new URL(path, this.base).href;
  }

  /** @param {string} path @param {RequestInit} [options] @returns {Promise<any>} */
  #ask(path, options) {
    return this.session.fetchJson(this.#resolve(path), options);
  }
}

/**
 * Ask again where the service says when: four films make it busy for a moment.
 *
 * @template T @param {() => Promise<T>} ask @param {AbortSignal} signal @returns {Promise<T>}
 */
async function patiently(ask, signal) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof ProblemError) || error.retryAfter === null || tries === MOST_TRIES) throw error;
      await new Promise((done) => setTimeout(done, 1000 * error.retryAfter));
      signal.throwIfAborted();
    }
  }
}

/** @param {string} collection */
function collectionPath(collection) {
  return `v1/collections/${encodeURIComponent(collection)}`;
}

/** @param {string} collection @param {string} id */
function filmPath(collection, id) {
  return `${collectionPath(collection)}/images/${encodeURIComponent(id)}`;
}

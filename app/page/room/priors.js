/** The films of one patient in order of time. */

import { fill, h } from '../shared/dom.js';
import { problemFrom } from '../shared/http.js';
import { dateOf, dayOf } from '../shared/terms.js';
import { daysFrom, daysText, patientOf, viewOf } from './facts.js';
import { say } from './words.js';

/** @typedef {import('./film/films-api.js').ListedFilm} ListedFilm */

export class Priors {
  /** What is listed. @type {string | null} */
  #listed = null;
  /** @type {ListedFilm[]} */
  #films = [];
  #request = new AbortController();

  /** @param {(name: import('./address.js').FilmName) => void} open */
  constructor(open) {
    this.open = open;
    this.status = h('p', { class: 'priors-status' });
    this.list = h('ol', { class: 'priors-list', role: 'list', 'aria-label': say('priors') });
    this.element = h('div', { class: 'priors', hidden: true }, this.status, this.list);
  }

  /**
   * @param {import('./film/films-api.js').FilmsApi} api @param {import('./film/film.js').Film | null} film the active one @param {ReadonlySet<string>} hidden fields that are not shown
   * @param {ReadonlySet<string>} shown ids of films on the light table
   */
  async show(api, film, hidden, shown) {
    this.element.hidden = film === null;
    const patient = film && patientOf(film.record);
    const key = patient && JSON.stringify([film.collection, patient]);
    if (patient !== null && key === this.#listed) {
      this.#fill(film, hidden, shown);
      return;
    }
    this.#request.abort();
    this.#request = new AbortController();
    this.#listed = key;
    this.#films = [];
    fill(this.list);
    fill(this.status, film !== null && patient === null && say('priorsUnknown'));
    if (patient === null) return;
    const { signal } = this.#request;
    try {
      const films = await api.filmsWith(film.collection, patient.field, patient.value, signal);
      if (signal.aborted) return;
      this.#films = films.sort(byTime);
      this.#fill(film, hidden, shown);
    } catch (error) {
      if (signal.aborted) return;
      this.#listed = null;
      fill(this.status, problemFrom(error).detail);
    }
  }

  /** @param {import('./film/film.js').Film} film @param {ReadonlySet<string>} hidden @param {ReadonlySet<string>} shown */
  #fill(film, hidden, shown) {
    fill(this.status, this.#films.length > 0 && (this.#films.length > 1 ? say('priors') : say('priorsNone')));
    const focused = this.list.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    fill(this.list, ...this.#films.map((prior) => this.#prior(prior, film, hidden, shown)));
    if (focused !== null) [...this.list.querySelectorAll('button')].find(({ dataset }) => dataset.id === focused)?.focus();
  }

  /** @param {ListedFilm} prior @param {import('./film/film.js').Film} film @param {ReadonlySet<string>} hidden @param {ReadonlySet<string>} shown */
  #prior(prior, film, hidden, shown) {
    const { collection } = film;
    const isActive = prior.id === film.id;
    // All were requested by the patient of the film.
    const days = daysFrom({ ...prior, group: film.record.group }, film.record);
    const facts = [dateOf(prior.metadata, hidden) ?? '', viewOf(prior, hidden).join(' · '), isActive || days === null || hidden.has('date') ? '' : daysText(days)];
    return h('li', {}, h('button', { class: 'prior', type: 'button', data: { id: prior.id }, 'aria-current': isActive && 'true',
      'aria-label': [...facts, shown.has(prior.id) && say('priorShown')].filter(Boolean).join(', ') || prior.id, on: { click: () => this.open({ collection, id: prior.id }) } },
      h('img', { src: film.api.thumbnailAddress(collection, prior.id), alt: '', loading: 'lazy', width: 44, height: 44 }),
      h('span', { class: 'prior-facts' }, ...facts.map((fact) => h('span', {}, fact))),
      shown.has(prior.id) && h('span', { class: 'prior-shown', 'aria-hidden': 'true' })));
  }
}

/** @param {ListedFilm} a @param {ListedFilm} b */
function byTime(a, b) {
  const [one, other] = [a, b].map((film) => dayOf(film.metadata) ?? '');
  return one.localeCompare(other) || a.id.localeCompare(b.id, 'en', { numeric: true });
}

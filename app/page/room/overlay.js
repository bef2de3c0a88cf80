/** What is written over a film: whose it is, when and how it was made, how it is shown, and the directions at its edges. */

import { fill, h } from '../shared/dom.js';
import { dateOf, personOf } from '../shared/terms.js';
import { numberText } from '../shared/words.js';
import { daysText, viewOf } from './facts.js';
import { edgeLetters } from './film/geometry.js';
import { say } from './words.js';

/**
 * @typedef {{letter: string, colour: number} | null} Tag of a patient on this light table; null: unknown
 * @typedef {{film: import('./film/film.js').Film, hidden: ReadonlySet<string>, tag: Tag, days: number | null, placement: import('./film/geometry.js').Placement, scale: number,
 *   window: import('./film/grey.js').GreyWindow, inverted: boolean}} Shown
 */

const EDGES = /** @type {const} */ (['top', 'right', 'bottom', 'left']);
const HASH_SHOWN = 8;
/** Values over a smaller range are no whole numbers. */
const FINE_RANGE = 100;

export class Overlay {
  constructor() {
    this.corners = Object.fromEntries(['top-left', 'top-right', 'bottom-left', 'bottom-right'].map((name) => [name, h('div', { class: `corner ${name}` })]));
    this.edges = EDGES.map((name) => h('span', { class: `edge ${name}`, hidden: true }));
    this.marks = h('div', { class: 'marks' });
    this.element = h('div', { class: 'overlay', hidden: true }, ...Object.values(this.corners), ...this.edges, this.marks);
  }

  clear() {
    this.element.hidden = true;
  }

  /** @param {Shown} shown */
  show({ film, hidden, tag, days, placement, scale, window, inverted }) {
    const { record } = film;
    const laterality = ['L', 'R', 'B'].includes(record.metadata.laterality) && !hidden.has('laterality') && String(record.metadata.laterality);
    lines(this.corners['top-left'],
      [h('span', { class: 'tag-patient', data: { colour: tag?.colour ?? 'none' } }, tag === null ? say('patientUnknown') : say('patient', { letter: tag.letter })),
        tag !== null && !hidden.has('patient') && h('span', { class: 'hash' }, shortened(record))],
      personOf(record.metadata, hidden));
    lines(this.corners['top-right'],
      [dateOf(record.metadata, hidden)].filter(Boolean).map((date) => h('strong', {}, date)),
      [days !== null && h('span', { class: 'days' }, daysText(days))],
      viewOf(record, hidden),
      [laterality && h('span', { class: 'laterality' }, laterality)]);
    lines(this.corners['bottom-left'],
      [h('span', { class: 'zoom' }, `${numberText(scale, { maximumSignificantDigits: 3 })}×`), h('span', {}, `${record.width} × ${record.height}`)],
      [h('span', { class: 'levels' }, levelsText(film, window)), !film.isDeep && film.isReady && say('eightBits')]);
    lines(this.corners['bottom-right'], [h('span', { class: 'hash', title: film.id }, ending(film.id))]);
    const letters = hidden.has('orientation') ? null : edgeLetters(record.metadata.orientation, placement);
    this.edges.forEach((edge, at) => {
      edge.hidden = letters === null;
      edge.textContent = letters?.[at] ?? '';
    });
    fill(this.marks, ...marksOf(placement, inverted).map((mark) => h('span', { class: 'mark-shown' }, mark)));
    this.element.hidden = false;
  }
}

/** @param {import('./film/geometry.js').Placement} placement @param {boolean} inverted @returns {string[]} how the shown film differs from the stored one */
export function marksOf({ turn, mirrored }, inverted) {
  return [mirrored && say('mirrored'), turn > 0 && say('turned', { degrees: 90 * turn }), inverted && say('inverted')].filter(Boolean);
}

/** @param {import('./film/film.js').Film} film @param {import('./film/grey.js').GreyWindow} window @returns {string} in stored values */
export function levelsText(film, window) {
  const { centre, width } = film.stored(window);
  const isFine = film.range.high - film.range.low < FINE_RANGE;
  const text = (value) => numberText(value, isFine ? { maximumSignificantDigits: 4 } : { maximumFractionDigits: 0 });
  return say('levels', { centre: text(centre), width: text(width) });
}

/** @param {HTMLElement} corner @param {...Array<Node | string | false | null>} rows */
function lines(corner, ...rows) {
  fill(corner, ...rows.map((row) => row.filter(Boolean)).filter((row) => row.length > 0)
    .map((row) => h('div', {}, ...row.flatMap((part, index) => (index > 0 ? [' · ', part] : [part])))));
}

/** @param {import('./film/films-api.js').FilmRecord} record */
function shortened({ metadata, group }) {
  return String(metadata.patient ?? group).slice(0, HASH_SHOWN);
}

/** @param {string} id @returns {string} its end, where UIDs differ */
function ending(id) {
  return id.length > 24 ? `…${id.slice(-22)}` : id;
}

/** One film on the light table: drawn on a canvas, with window, zoom and position by pointer and keys. */

import { fill, h } from '../shared/dom.js';
import { problemFrom } from '../shared/http.js';
import { iconButton } from '../shared/icon-button.js';
import { dateOf } from '../shared/terms.js';
import { viewOf } from './facts.js';
import { openFilm } from './film/film.js';
import { filmPoint, matrixOf, mirrored, moved, scaleOf, turned, wholeFilm, zoomed } from './film/geometry.js';
import { draggedWindow, presetWindow } from './film/grey.js';
import { marksOf, Overlay } from './overlay.js';
import { RegionFrame } from './region-frame.js';
import { say } from './words.js';

/**
 * @typedef {import('./address.js').FilmName} FilmName
 * @typedef {import('./film/geometry.js').Placement} Placement
 * @typedef {import('./film/grey.js').GreyWindow} GreyWindow
 * @typedef {'placement' | 'window'} Change
 */

/** By one click of a wheel, which is so many pixels, or lines of so many; pads have less at a time. */
const WHEEL_STEP = 1.15;
const WHEEL_PIXELS = 100;
const WHEEL_LINE = 33;
/** Pixels of a drag with the right button that zoom by a factor of e. */
const ZOOM_PIXELS = 200;
/** From here on each pixel of the film is a square of its own. */
const PIXELATED = 3;
const REST_MS = 250;

export class Viewport {
  /** @type {import('./film/film.js').Film | null} */
  film = null;
  /** @type {FilmName | null} */
  name = null;
  /** @type {Placement} */
  placement = wholeFilm();
  /** @type {GreyWindow} */
  window = { centre: 127.5, width: 255 };
  inverted = false;
  /** @type {ReadonlySet<string>} */
  hidden = new Set();
  /** @type {import('./overlay.js').Tag} */
  tag = null;
  /** Days from the first viewport's film of the same patient. @type {number | null} */
  days = null;
  /** The film through its window; while the window moves, no finer than the screen shows it. @type {OffscreenCanvas | null} */
  #painted = null;
  /** Pixels of the film for one that is painted. */
  #stride = 1;
  #isAtRest = true;
  #isStale = false;
  #frame = 0;
  #resting = 0;
  #request = new AbortController();
  /** What a drag with the pointer does. @type {((x: number, y: number) => void) | null} */
  #drag = null;
  #begun = { x: 0, y: 0 };

  /**
   * @param {{active: (viewport: Viewport) => void, changed: (viewport: Viewport, change: Change) => void, shown: (viewport: Viewport) => void, clear: (viewport: Viewport) => void, alone: () => void,
   *   region: (viewport: Viewport, box: import('./region-frame.js').Box) => void, moves: () => boolean}} actions `changed`: by the reader; `shown`: another film, or none;
   *   `moves`: whether dragging moves the film
   */
  constructor(actions) {
    this.actions = actions;
    this.canvas = h('canvas', { class: 'viewport-canvas', 'aria-hidden': 'true' });
    this.overlay = new Overlay();
    this.status = h('div', { class: 'viewport-status' });
    this.region = new RegionFrame((box) => actions.region(this, box));
    this.close = iconButton('close', say('close'), () => actions.clear(this), { class: 'viewport-close' });
    this.element = h('div', { class: 'viewport', role: 'group', tabIndex: 0, data: { state: 'empty' }, on: {
      focusin: () => actions.active(this),
      pointerdown: (event) => this.#begin(event),
      pointermove: (event) => this.#drag?.(event.clientX - this.#begun.x, event.clientY - this.#begun.y),
      pointerup: () => this.#end(),
      pointercancel: () => this.#end(),
      dblclick: (event) => event.target.closest('button') === null && actions.alone(),
      wheel: (event) => this.#wheel(event),
      contextmenu: (event) => event.preventDefault(),
    } }, this.canvas, this.overlay.element, this.status, this.region.element, this.close);
    new ResizeObserver(() => this.draw()).observe(this.element);
    this.clear();
  }

  clear() {
    this.#stop();
    this.film = null;
    this.name = null;
    this.#painted = null;
    this.#say('empty', h('p', {}, say('empty')));
  }

  /** @param {import('./film/films-api.js').FilmsApi} api @param {FilmName} name */
  async show(api, name) {
    this.clear();
    const { signal } = this.#request;
    this.name = name;
    this.#say('loading', h('p', { role: 'status' }, say('loading')));
    try {
      const [film, { hidden }] = await Promise.all([openFilm(api, name.collection, name.id, signal), api.collection(name.collection)]);
      signal.throwIfAborted();
      this.#take(film, hidden);
      this.actions.shown(this);
      await film.learn(signal);
      signal.throwIfAborted();
      this.window = film.home;
      this.#paintAnew();
      this.#say('ready');
      this.actions.shown(this);
    } catch (error) {
      if (!signal.aborted) this.#fail(error, () => this.show(api, name));
    }
  }

  /** @param {import('./film/film.js').Film} film @param {ReadonlySet<string>} hidden */
  #take(film, hidden) {
    this.film = film;
    this.hidden = hidden;
    this.placement = wholeFilm();
    this.inverted = false;
    this.window = film.home;
    this.#paintAnew();
    this.#say('loading');
  }

  /** @param {unknown} error @param {() => void} retry */
  #fail(error, retry) {
    const { title, detail } = problemFrom(error);
    this.film = null;
    this.#say('failed', h('p', { role: 'alert' }, h('strong', {}, title), h('br'), detail), h('button', { class: 'button', type: 'button', on: { click: retry } }, say('retry')));
    this.actions.shown(this);
  }

  /** Whether its window can be changed. */
  get isReady() {
    return this.element.dataset.state === 'ready';
  }

  /** @param {Placement} placement @param {boolean} [byReader] */
  setPlacement(placement, byReader = false) {
    this.placement = placement;
    this.draw();
    if (byReader) this.actions.changed(this, 'placement');
  }

  /** @param {GreyWindow} window @param {boolean} inverted @param {boolean} [byReader] */
  setWindow(window, inverted, byReader = false) {
    if (!this.isReady) return;
    this.window = window;
    this.inverted = inverted;
    this.#isAtRest = false;
    this.#paintAnew();
    this.#sharpenSoon();
    if (byReader) this.actions.changed(this, 'window');
  }

  /** @param {import('./film/grey.js').Preset} preset */
  choosePreset(preset) {
    if (this.isReady) this.setWindow(presetWindow(preset, this.film.home, this.film.range, this.film.isCt), this.inverted, true);
  }

  /** @param {number} x @param {number} y as if the pointer was dragged so far */
  moveWindow(x, y) {
    if (this.isReady) this.setWindow(draggedWindow(this.window, x, y, this.film.range), this.inverted, true);
  }

  invert() {
    this.setWindow(this.window, !this.inverted, true);
  }

  /** @param {number} factor @param {{x: number, y: number}} [still] in pixels of the screen */
  zoomBy(factor, still) {
    if (this.film !== null) this.setPlacement(zoomed(this.placement, this.film.record, this.#box, factor, still), true);
  }

  /** @param {number} x @param {number} y in pixels of the page */
  moveBy(x, y) {
    if (this.film !== null) this.setPlacement(moved(this.placement, this.film.record, this.#box, x * devicePixelRatio, y * devicePixelRatio), true);
  }

  fit() {
    this.setPlacement({ ...this.placement, zoom: { kind: 'fit', by: 1 }, centre: { x: 0.5, y: 0.5 } }, true);
  }

  actualSize() {
    this.setPlacement({ ...this.placement, zoom: { kind: 'actual', by: 1 } }, true);
  }

  mirror() {
    this.setPlacement(mirrored(this.placement), true);
  }

  turn() {
    this.setPlacement(turned(this.placement), true);
  }

  reset() {
    if (this.film === null) return;
    this.setPlacement(wholeFilm(), true);
    this.setWindow(this.film.home, false, true);
  }

  /** A part of the viewport as one of the film; null: nothing of it. @param {import('./region-frame.js').Box} box @returns {import('./region-frame.js').Box | null} */
  filmBox(box) {
    const { width, height } = this.film.record;
    const matrix = matrixOf(this.placement, this.film.record, this.#box);
    const corners = [[box.x, box.y], [box.x + box.width, box.y + box.height]]
      .map(([x, y]) => filmPoint(matrix, { x: x * this.#box.width, y: y * this.#box.height }));
    const side = (values, size) => values.map((value) => Math.min(1, Math.max(0, value / size))).sort((a, b) => a - b);
    const [left, right] = side(corners.map(({ x }) => x), width);
    const [top, bottom] = side(corners.map(({ y }) => y), height);
    return right - left > 0.01 && bottom - top > 0.01 ? { x: left, y: top, width: right - left, height: bottom - top } : null;
  }

  /** Draw once before the next picture of the screen. */
  draw() {
    if (this.#frame === 0) this.#frame = requestAnimationFrame(() => this.#drawNow());
  }

  /** @param {number} number @param {number} count @param {boolean} isActive */
  label(number, count, isActive) {
    const what = this.film === null ? [say('viewportEmpty')]
      : [this.tag && say('patient', { letter: this.tag.letter }), dateOf(this.film.record.metadata, this.hidden), ...viewOf(this.film.record, this.hidden), ...marksOf(this.placement, this.inverted)];
    this.element.setAttribute('aria-label', `${say('viewport', { number, count })}: ${what.filter(Boolean).join(', ')}`);
    this.element.classList.toggle('active', isActive);
    if (isActive) this.element.setAttribute('aria-current', 'true');
    else this.element.removeAttribute('aria-current');
    this.element.dataset.colour = this.film === null ? '' : String(this.tag?.colour ?? 'none');
  }

  /** Size of the viewport in pixels of the screen. */
  get #box() {
    return { width: Math.max(1, Math.round(this.element.clientWidth * devicePixelRatio)), height: Math.max(1, Math.round(this.element.clientHeight * devicePixelRatio)) };
  }

  #drawNow() {
    this.#frame = 0;
    const box = this.#box;
    Object.assign(this.canvas, box);
    const context = this.canvas.getContext('2d');
    if (this.film === null) {
      this.overlay.clear();
      return;
    }
    const scale = scaleOf(this.placement, this.film.record, box);
    if (this.#isStale) this.#paint(this.#isAtRest ? 1 : Math.max(1, Math.floor(1 / scale)));
    const [a, b, c, d, e, f] = matrixOf(this.placement, this.film.record, box);
    context.setTransform(a, b, c, d, e, f);
    context.imageSmoothingEnabled = scale < PIXELATED && scale !== 1;
    context.imageSmoothingQuality = 'high';
    const { record, picture } = this.film;
    const each = this.#stride * record.width / picture.width;
    context.drawImage(this.#painted, 0, 0, this.#painted.width * each, this.#painted.height * each);
    this.overlay.show({ film: this.film, hidden: this.hidden, tag: this.tag, days: this.days, placement: this.placement, scale, window: this.window, inverted: this.inverted });
  }

  #paintAnew() {
    this.#isStale = true;
    this.draw();
  }

  /** @param {number} stride */
  #paint(stride) {
    this.#isStale = false;
    this.#stride = stride;
    const image = this.film.paint(this.window, this.inverted, stride);
    if (this.#painted?.width !== image.width || this.#painted.height !== image.height) this.#painted = new OffscreenCanvas(image.width, image.height);
    this.#painted.getContext('2d').putImageData(image, 0, 0);
  }

  #sharpenSoon() {
    clearTimeout(this.#resting);
    this.element.dataset.sharp = 'false';
    this.#resting = setTimeout(() => this.#sharpen(), REST_MS);
  }

  async #sharpen() {
    const { signal } = this.#request;
    const { film, window } = this;
    this.#isAtRest = true;
    this.#paintAnew();
    try {
      if (await film.sharpen(window, signal) && !signal.aborted) this.#paintAnew();
    } catch (error) {
      // The picture that is shown is right, if coarse: nothing replaces it.
      if (!signal.aborted) console.warn(problemFrom(error).detail);
    }
    if (!signal.aborted && window === this.window) this.element.dataset.sharp = 'true';
  }

  #stop() {
    clearTimeout(this.#resting);
    this.#request.abort();
    this.#request = new AbortController();
    this.#drag = null;
    this.region.open(false);
  }

  /** @param {'empty' | 'loading' | 'ready' | 'failed'} state @param {...Node} parts shown instead of the film */
  #say(state, ...parts) {
    this.element.dataset.state = state;
    this.element.dataset.film = this.name?.id ?? '';
    this.close.hidden = this.name === null;
    fill(this.status, ...parts);
    this.draw();
  }

  /** @param {PointerEvent} event */
  #begin(event) {
    if (event.target instanceof Element && event.target.closest('button')) return;
    this.element.focus({ preventScroll: true });
    if (this.film === null || event.button > 2) return;
    event.preventDefault();
    this.#begun = { x: event.clientX, y: event.clientY };
    this.element.setPointerCapture(event.pointerId);
    this.#drag = this.#dragOf(event);
  }

  /** Left: window; middle, or with Shift or Space: move; right: zoom. @param {PointerEvent} event */
  #dragOf(event) {
    const { placement, window, film } = this;
    if (event.button === 1 || event.shiftKey || this.actions.moves()) {
      return (x, y) => this.setPlacement(moved(placement, film.record, this.#box, x * devicePixelRatio, y * devicePixelRatio), true);
    }
    if (event.button === 2) {
      const still = this.#pointOf(event);
      return (_, y) => this.setPlacement(zoomed(placement, film.record, this.#box, Math.exp(-y / ZOOM_PIXELS), still), true);
    }
    return (x, y) => this.setWindow(draggedWindow(window, x, y, film.range), this.inverted, true);
  }

  #end() {
    this.#drag = null;
  }

  /** @param {WheelEvent} event */
  #wheel(event) {
    event.preventDefault();
    const clicks = event.deltaY * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? WHEEL_LINE : 1) / WHEEL_PIXELS;
    this.zoomBy(WHEEL_STEP ** -Math.max(-2, Math.min(2, clicks)), this.#pointOf(event));
  }

  /** @param {MouseEvent} event @returns {{x: number, y: number}} in pixels of the screen, from the viewport's corner */
  #pointOf(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    return { x: (event.clientX - left) * devicePixelRatio, y: (event.clientY - top) * devicePixelRatio };
  }
}

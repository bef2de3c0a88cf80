/** One image, large: zoom, move, window, and inverted grey values. */

import { h } from '../../shared/dom.js';
import { iconButton } from '../../shared/icon-button.js';
import { actionOf } from '../../shared/keys.js';
import { numberText } from '../../shared/words.js';
import { say } from '../words.js';
import { MatchedControl } from './matched-control.js';
import { RegionControl } from './region-control.js';
import { WindowControl } from './window-control.js';

const LARGEST_ZOOM = 16;
const ZOOM_STEP = 1.5;
const MOVE_STEP = 60;
// From here on each pixel of the image is a square of its own.
const PIXELATED = 4;

export class ImageViewer {
  /** Pixels of the screen for one of the image; null: as many as fit. @type {number | null} */
  #zoom = null;
  #x = 0;
  #y = 0;
  #inverted = false;
  #grip = null;
  /** Address of the picture through its automatic window. */
  #address = '';
  /** @type {(address: string) => void} */
  #load = () => undefined;

  /** @param {(box: import('../query/query.js').Box | null) => void} search by a part of the picture, or by all of it */
  constructor(search) {
    this.picture = h('img', { class: 'viewer-picture', alt: '', decoding: 'async' });
    this.picture.setAttribute('draggable', 'false');
    this.lost = h('p', { class: 'viewer-lost', hidden: true }, say('image.lost'));
    this.zoomText = h('output', { class: 'viewer-zoom', 'aria-label': say('image.zoom') });
    this.invertButton = iconButton('invert', say('image.invert'), () => this.invert(), { 'aria-pressed': 'false' });
    this.window = new WindowControl((window) => {
      this.#load(window === null ? this.#address : `${this.#address}?window=${window.centre},${window.width}`);
    });
    this.layer = h('div', { class: 'viewer-layer' });
    this.matched = new MatchedControl(this.layer);
    this.region = new RegionControl(this.layer, search);
    this.stage = h('div', { class: 'viewer-stage', on: this.#pointerListeners() }, this.picture, this.layer, this.lost);
    this.element = h('div', { class: 'viewer' }, this.stage,
      h('div', { class: 'viewer-tools', role: 'toolbar', 'aria-label': say('image.tools') },
        iconButton('zoomOut', say('image.zoomOut'), () => this.zoomBy(1 / ZOOM_STEP)), this.zoomText,
        iconButton('zoomIn', say('image.zoomIn'), () => this.zoomBy(ZOOM_STEP)),
        iconButton('fit', say('image.fit'), () => this.fit()),
        h('button', { class: 'tool viewer-actual', type: 'button', title: say('image.actualWhat'),
          'aria-label': say('image.actual'), on: { click: () => this.actualSize() } }, '1:1'),
        this.invertButton, this.window.button, this.matched.button, this.region.button), this.window.panel, this.region.panel, this.matched.legend);
    this.picture.addEventListener('error', () => this.#showLost(true));
    this.picture.addEventListener('load', () => { this.#showLost(false); this.#draw(); });
    new ResizeObserver(() => this.#draw()).observe(this.stage);
  }

  /**
   * Show an image; one that is already shown keeps its zoom and position.
   *
   * @param {string} address @param {string} description @param {import('../api.js').SearchApi} api
   */
  show(address, description, api) {
    this.#load = (options) => api.picture(this.picture, options);
    this.picture.alt = description;
    if (this.#address === address) return;
    this.#address = address;
    this.window.forget();
    this.fit();
    this.#showLost(false);
    this.#load(address);
  }

  clear() {
    this.#address = '';
    this.matched.forget();
    this.region.forget();
    this.window.forget();
    this.picture.removeAttribute('src');
  }

  fit() {
    this.#zoom = null;
    this.#x = 0;
    this.#y = 0;
    this.#draw();
  }

  actualSize() {
    this.zoomBy(1 / this.#factor);
  }

  invert() {
    this.#inverted = !this.#inverted;
    this.invertButton.setAttribute('aria-pressed', String(this.#inverted));
    this.#draw();
  }

  /** @param {number} factor @param {number} [x] @param {number} [y] the point that stays, from the stage's centre */
  zoomBy(factor, x = 0, y = 0) {
    const now = this.#factor;
    const fitting = this.#fitting;
    const zoom = Math.min(Math.max(LARGEST_ZOOM, fitting), Math.max(Math.min(1, fitting), now * factor));
    const change = zoom / now;
    this.#x = x - (x - this.#x) * change;
    this.#y = y - (y - this.#y) * change;
    this.#zoom = zoom === fitting ? null : zoom;
    this.#draw();
  }

  /** @param {KeyboardEvent} event @returns {boolean} whether the key was for the viewer */
  takesKey(event) {
    const act = {
      zoomIn: () => this.zoomBy(ZOOM_STEP), zoomOut: () => this.zoomBy(1 / ZOOM_STEP), fit: () => this.fit(), actual: () => this.actualSize(), invert: () => this.invert(),
      grey: () => this.window.toggle(), matched: () => this.matched.toggle(), region: () => this.region.toggle(),
    }[actionOf(event) ?? ''];
    if (act) act();
    else if (this.#movable && event.key.startsWith('Arrow')) this.#moveByKey(event.key);
    else return false;
    return true;
  }

  /** Pixels of the screen for one of the image, where all of it is to be seen. */
  get #fitting() {
    const { naturalWidth: width, naturalHeight: height } = this.picture;
    const { clientWidth, clientHeight } = this.stage;
    if (!width || !height || !clientWidth || !clientHeight) return 1;
    return Math.min(clientWidth / width, clientHeight / height) * devicePixelRatio;
  }

  get #factor() {
    return this.#zoom ?? this.#fitting;
  }

  /** How far the picture may be moved to either side. */
  get #reach() {
    const scale = this.#factor / devicePixelRatio;
    const beyond = (size, stage) => Math.max(0, (size * scale - stage) / 2);
    return { x: beyond(this.picture.naturalWidth, this.stage.clientWidth), y: beyond(this.picture.naturalHeight, this.stage.clientHeight) };
  }

  get #movable() {
    return this.#zoom !== null && (this.#reach.x > 0 || this.#reach.y > 0);
  }

  /** @param {string} key */
  #moveByKey(key) {
    if (key === 'ArrowLeft') this.#x += MOVE_STEP;
    if (key === 'ArrowRight') this.#x -= MOVE_STEP;
    if (key === 'ArrowUp') this.#y += MOVE_STEP;
    if (key === 'ArrowDown') this.#y -= MOVE_STEP;
    this.#draw();
  }

  #pointerListeners() {
    return {
      wheel: (event) => {
        event.preventDefault();
        const { x, y } = this.#fromCentre(event);
        this.zoomBy(event.deltaY < 0 ? 1.15 : 1 / 1.15, x, y);
      },
      dblclick: (event) => {
        const { x, y } = this.#fromCentre(event);
        if (this.#zoom !== null) this.fit();
        else this.zoomBy(Math.max(2.5, 1 / this.#factor), x, y);
      },
      pointerdown: (event) => {
        if (!this.#movable) return;
        this.#grip = { x: event.clientX - this.#x, y: event.clientY - this.#y };
        this.stage.setPointerCapture(event.pointerId);
      },
      pointermove: (event) => {
        if (!this.#grip) return;
        this.#x = event.clientX - this.#grip.x;
        this.#y = event.clientY - this.#grip.y;
        this.#draw();
      },
      pointerup: () => { this.#grip = null; },
      pointercancel: () => { this.#grip = null; },
    };
  }

  /** @param {MouseEvent} event */
  #fromCentre(event) {
    const box = this.stage.getBoundingClientRect();
    return { x: event.clientX - box.left - box.width / 2, y: event.clientY - box.top - box.height / 2 };
  }

  /** Apply zoom and position, keeping the picture over the stage. */
  #draw() {
    const zoom = this.#factor;
    const { x, y } = this.#reach;
    this.#x = Math.min(x, Math.max(-x, this.#x));
    this.#y = Math.min(y, Math.max(-y, this.#y));
    const { style } = this.picture;
    const transform = `translate(calc(-50% + ${this.#x}px), calc(-50% + ${this.#y}px)) scale(${zoom / devicePixelRatio})`;
    style.transform = transform;
    Object.assign(this.layer.style, { transform, width: `${this.picture.naturalWidth}px`, height: `${this.picture.naturalHeight}px` });
    this.layer.style.setProperty('--scale', String(zoom / devicePixelRatio));
    style.filter = this.#inverted ? 'invert(1)' : '';
    style.imageRendering = zoom >= PIXELATED ? 'pixelated' : '';
    this.stage.classList.toggle('movable', this.#movable);
    this.zoomText.textContent = this.picture.naturalWidth ? `${numberText(zoom, { maximumFractionDigits: zoom < 1 ? 2 : 1 })}\u00d7` : '';
  }

  /** @param {boolean} lost */
  #showLost(lost) {
    this.lost.hidden = !lost;
    this.picture.hidden = lost;
    this.layer.hidden = lost;
  }
}

/** One image, large: zoom, move, and inverted grey values. */

import { h } from '../../shared/dom.js';
import { icon } from '../../shared/icons.js';

const LARGEST_ZOOM = 8;
const ZOOM_STEP = 1.5;
const MOVE_STEP = 60;

export class ImageViewer {
  #zoom = 1;
  #x = 0;
  #y = 0;
  #inverted = false;
  #grip = null;

  constructor() {
    this.picture = h('img', { class: 'viewer-picture', alt: '', decoding: 'async' });
    this.picture.setAttribute('draggable', 'false');
    this.lost = h('p', { class: 'viewer-lost', hidden: true }, 'This image cannot be shown.');
    this.zoomText = h('output', { class: 'viewer-zoom', 'aria-label': 'Zoom' }, '1\u00d7');
    this.invertButton = tool('invert', 'Invert grey values (i)', () => this.invert());
    this.invertButton.setAttribute('aria-pressed', 'false');
    this.stage = h('div', { class: 'viewer-stage', on: this.#pointerListeners() }, this.picture, this.lost);
    this.element = h('div', { class: 'viewer' }, this.stage,
      h('div', { class: 'viewer-tools', role: 'toolbar', 'aria-label': 'Image' },
        tool('zoomOut', 'Zoom out (\u2212)', () => this.zoomBy(1 / ZOOM_STEP)), this.zoomText,
        tool('zoomIn', 'Zoom in (+)', () => this.zoomBy(ZOOM_STEP)),
        tool('fit', 'Fit to the window (0)', () => this.fit()), this.invertButton));
    this.picture.addEventListener('error', () => this.#showLost(true));
    this.picture.addEventListener('load', () => this.#showLost(false));
  }

  /**
   * Show an image; one that is on show already keeps its zoom and place.
   *
   * @param {string} address @param {string} description
   */
  show(address, description) {
    this.picture.alt = description;
    if (this.picture.getAttribute('src') === address) return;
    this.fit();
    this.#showLost(false);
    this.picture.src = address;
  }

  fit() {
    this.#zoom = 1;
    this.#x = 0;
    this.#y = 0;
    this.#draw();
  }

  invert() {
    this.#inverted = !this.#inverted;
    this.invertButton.setAttribute('aria-pressed', String(this.#inverted));
    this.#draw();
  }

  /** @param {number} factor @param {number} [x] @param {number} [y] the point that stays, from the stage's centre */
  zoomBy(factor, x = 0, y = 0) {
    const zoom = Math.min(LARGEST_ZOOM, Math.max(1, this.#zoom * factor));
    const change = zoom / this.#zoom;
    this.#x = x - (x - this.#x) * change;
    this.#y = y - (y - this.#y) * change;
    this.#zoom = zoom;
    this.#draw();
  }

  /** @param {KeyboardEvent} event @returns {boolean} whether the key was for the viewer */
  takesKey(event) {
    if (event.key === '+' || event.key === '=') this.zoomBy(ZOOM_STEP);
    else if (event.key === '-') this.zoomBy(1 / ZOOM_STEP);
    else if (event.key === '0') this.fit();
    else if (event.key === 'i') this.invert();
    else if (this.#zoom > 1 && event.key.startsWith('Arrow')) this.#moveByKey(event.key);
    else return false;
    return true;
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
        if (this.#zoom > 1) this.fit();
        else this.zoomBy(2.5, x, y);
      },
      pointerdown: (event) => {
        if (this.#zoom === 1) return;
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

  /** Apply zoom and place, keeping the picture over the stage. */
  #draw() {
    const reachX = (this.stage.clientWidth * (this.#zoom - 1)) / 2;
    const reachY = (this.stage.clientHeight * (this.#zoom - 1)) / 2;
    this.#x = Math.min(reachX, Math.max(-reachX, this.#x));
    this.#y = Math.min(reachY, Math.max(-reachY, this.#y));
    this.picture.style.transform = `translate(${this.#x}px, ${this.#y}px) scale(${this.#zoom})`;
    this.picture.style.filter = this.#inverted ? 'invert(1)' : '';
    this.stage.classList.toggle('movable', this.#zoom > 1);
    this.zoomText.textContent = `${Number(this.#zoom.toFixed(1))}\u00d7`;
  }

  /** @param {boolean} lost */
  #showLost(lost) {
    this.lost.hidden = !lost;
    this.picture.hidden = lost;
  }
}

/** @param {Parameters<typeof icon>[0]} name @param {string} title @param {() => void} act */
function tool(name, title, act) {
  return h('button', { class: 'tool', type: 'button', title, 'aria-label': title, on: { click: act } }, icon(name));
}

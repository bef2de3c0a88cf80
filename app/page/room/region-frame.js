/** A part of a film to search by: drawn with the pointer, or moved and sized by keys. */

import { h } from '../shared/dom.js';
import { say } from './words.js';

/** @typedef {{x: number, y: number, width: number, height: number}} Box in fractions of the viewport */

/** @type {Box} */
const BEGIN = Object.freeze({ x: 0.35, y: 0.35, width: 0.3, height: 0.3 });
const STEP = 0.02;
const LEAST = 0.02;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class RegionFrame {
  #box = BEGIN;
  /** @type {{x: number, y: number} | null} */
  #begun = null;

  /** @param {(box: Box) => void} done called with the part that was marked */
  constructor(done) {
    this.done = done;
    this.frame = h('div', { class: 'region-frame' });
    this.element = h('div', { class: 'region-layer', hidden: true, on: {
      pointerdown: (event) => this.#begin(event),
      pointermove: (event) => this.#draw(event),
      pointerup: () => this.#end(),
      pointercancel: () => { this.#begun = null; },
    } }, this.frame, h('p', { class: 'region-hint' }, say('regionHint')));
  }

  get isOpen() {
    return !this.element.hidden;
  }

  /** @param {boolean} open */
  open(open) {
    this.element.hidden = !open;
    this.#box = BEGIN;
    this.#begun = null;
    this.#show();
  }

  /** @param {KeyboardEvent} event @returns {boolean} whether the key was for the frame */
  takesKey({ key, shiftKey }) {
    const arrow = ARROWS[key];
    if (key === 'Enter') this.#finish();
    else if (key === 'Escape') this.open(false);
    else if (arrow) this.#step(arrow, shiftKey);
    else return false;
    return true;
  }

  /** @param {number[]} arrow @param {boolean} sizes */
  #step([right, down], sizes) {
    const { x, y, width, height } = this.#box;
    const within = (value, most) => Math.min(most, Math.max(0, value));
    this.#box = sizes
      ? { x, y, width: Math.max(LEAST, within(width + right * STEP, 1 - x)), height: Math.max(LEAST, within(height + down * STEP, 1 - y)) }
      : { x: within(x + right * STEP, 1 - width), y: within(y + down * STEP, 1 - height), width, height };
    this.#show();
  }

  /** @param {PointerEvent} event */
  #begin(event) {
    event.stopPropagation();
    if (event.button !== 0) return;
    this.#begun = this.#position(event);
    this.element.setPointerCapture(event.pointerId);
  }

  /** @param {PointerEvent} event */
  #draw(event) {
    if (this.#begun === null) return;
    const { x, y } = this.#position(event);
    this.#box = { x: Math.min(x, this.#begun.x), y: Math.min(y, this.#begun.y), width: Math.abs(x - this.#begun.x), height: Math.abs(y - this.#begun.y) };
    this.#show();
  }

  #end() {
    const isDrawn = this.#begun !== null && this.#box.width >= LEAST && this.#box.height >= LEAST;
    this.#begun = null;
    if (isDrawn) this.#finish();
  }

  #finish() {
    const box = this.#box;
    this.open(false);
    this.done(box);
  }

  /** @param {PointerEvent} event */
  #position(event) {
    const { left, top, width, height } = this.element.getBoundingClientRect();
    const inside = (share) => Math.min(1, Math.max(0, share));
    return { x: inside((event.clientX - left) / width), y: inside((event.clientY - top) / height) };
  }

  #show() {
    const { x, y, width, height } = this.#box;
    Object.assign(this.frame.style, { left: `${100 * x}%`, top: `${100 * y}%`, width: `${100 * width}%`, height: `${100 * height}%` });
  }
}

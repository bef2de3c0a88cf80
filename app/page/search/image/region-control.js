/** A part of the picture to search by: drawn with the pointer, or set by four sliders. */

import { h } from '../../shared/dom.js';
import { iconButton } from '../../shared/icon-button.js';
import { say } from '../words.js';

/** @typedef {import('../query/query.js').Box} Box */

const STEPS = 100;
/** Least side of a box as a share of the picture. */
const LEAST = 0.02;
/** @type {Box} */
const BEGIN = Object.freeze({ x: 0.35, y: 0.35, width: 0.3, height: 0.3 });
const SLIDERS = /** @type {const} */ ([['x', 'region.left'], ['y', 'region.top'], ['width', 'region.width'], ['height', 'region.height']]);

export class RegionControl {
  /** @type {Box} */
  #box = BEGIN;
  /** Where a box is being drawn from, in fractions of the picture. @type {{x: number, y: number} | null} */
  #begun = null;
  #offered = false;

  /**
   * @param {HTMLElement} layer covers the picture
   * @param {(box: Box | null) => void} search null: by the whole picture
   */
  constructor(layer, search) {
    this.layer = layer;
    this.search = search;
    this.button = iconButton('region', say('region.toggle'), () => this.toggle(), { 'aria-expanded': 'false', 'aria-controls': 'image-region', hidden: true });
    this.frame = h('div', { class: 'region-frame', hidden: true });
    this.sliders = SLIDERS.map(([side, name]) => this.#slider(side, say(name)));
    this.summary = h('summary', {}, say('region.edges'));
    this.whole = h('button', { class: 'button', type: 'button', on: { click: () => search(null) } }, say('region.whole'));
    this.panel = h('div', { class: 'region-panel', id: 'image-region', role: 'group', 'aria-label': say('region.title'), hidden: true,
      on: { keydown: (event) => this.#onKey(event) } },
      h('p', {}, say('region.drag')),
      h('details', {}, this.summary, ...this.sliders.map(({ name, input, output }) => h('label', { class: 'window-line' }, h('span', {}, name), input, output))),
      h('div', { class: 'window-presets' }, h('button', { class: 'button', type: 'button', on: { click: () => search(this.#box) } }, say('region.search')), this.whole));
    const drawing = { pointerdown: (event) => this.#begin(event), pointermove: (event) => this.#draw(event), pointerup: () => this.#end(), pointercancel: () => this.#end() };
    for (const [type, listener] of Object.entries(drawing)) layer.addEventListener(type, listener);
    layer.append(this.frame);
  }

  /** Reset for an image that has no regions, or none yet. */
  forget() {
    this.#offered = false;
    this.button.hidden = true;
    this.#open(false);
  }

  /** @param {Box | null} box that is searched by now; null: none */
  offer(box) {
    this.#offered = true;
    this.button.hidden = false;
    this.whole.hidden = box === null;
    this.#box = box ?? BEGIN;
    this.#open(box !== null && !this.panel.hidden);
    this.#show();
  }

  /** The focus goes into the panel, and back to its button. */
  toggle() {
    if (!this.#offered) return;
    this.#open(this.panel.hidden);
    (this.panel.hidden ? this.button : this.summary).focus();
  }

  /** @param {boolean} open */
  #open(open) {
    this.panel.hidden = !open;
    this.frame.hidden = !open;
    this.layer.classList.toggle('marking', open);
    this.button.setAttribute('aria-expanded', String(open));
    if (open) this.#show();
  }

  /** @param {keyof Box} side @param {string} name */
  #slider(side, name) {
    const input = h('input', { type: 'range', min: '0', max: String(STEPS), 'aria-label': name, on: { input: () => this.#set({ [side]: input.valueAsNumber / STEPS }) } });
    return { side, name, input, output: h('output', { 'aria-hidden': 'true' }) };
  }

  /** An edge that moves takes the box along; a length ends at the picture's edge. @param {Partial<Box>} change */
  #set(change) {
    const box = { ...this.#box, ...change };
    const within = (start, length, moved) => (moved ? [Math.min(start, 1 - length), length] : [start, Math.min(Math.max(length, LEAST), 1 - start)]);
    const [x, width] = within(box.x, box.width, 'x' in change);
    const [y, height] = within(box.y, box.height, 'y' in change);
    this.#box = { x, y, width, height };
    this.#show();
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.key === 'Enter' && event.target instanceof HTMLInputElement) this.search(this.#box);
    else if (event.key === 'Escape') this.toggle();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {PointerEvent} event */
  #begin(event) {
    if (this.panel.hidden) return;
    event.stopPropagation();
    this.#begun = this.#position(event);
    this.layer.setPointerCapture(event.pointerId);
  }

  /** @param {PointerEvent} event */
  #draw(event) {
    if (this.#begun === null) return;
    const { x, y } = this.#position(event);
    const width = Math.abs(x - this.#begun.x);
    const height = Math.abs(y - this.#begun.y);
    // A click leaves the box as it is.
    if (width < LEAST || height < LEAST) return;
    this.#box = { x: Math.min(x, this.#begun.x), y: Math.min(y, this.#begun.y), width, height };
    this.#show();
  }

  #end() {
    this.#begun = null;
  }

  /** @param {PointerEvent} event */
  #position(event) {
    const { left, top, width, height } = this.layer.getBoundingClientRect();
    const inside = (share) => Math.min(1, Math.max(0, share));
    return { x: inside((event.clientX - left) / width), y: inside((event.clientY - top) / height) };
  }

  #show() {
    const { x, y, width, height } = this.#box;
    Object.assign(this.frame.style, { left: `${100 * x}%`, top: `${100 * y}%`, width: `${100 * width}%`, height: `${100 * height}%` });
    for (const { side, input, output } of this.sliders) {
      const text = `${Math.round(100 * this.#box[side])} %`;
      if (input.getRootNode().activeElement !== input) input.value = String(Math.round(STEPS * this.#box[side]));
      input.setAttribute('aria-valuetext', text);
      output.textContent = text;
    }
  }
}

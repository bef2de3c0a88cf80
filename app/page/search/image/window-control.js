/** The window of a film with more than 8 bits: the stored values that become black and white, by presets or two sliders. */

import { countText } from '../../shared/count-text.js';
import { fill, h } from '../../shared/dom.js';
import { iconButton } from '../../shared/icon-button.js';
import { say } from '../words.js';

/**
 * @typedef {{centre: number, width: number}} GreyWindow in stored values
 * @typedef {{deep: boolean, smallest: number, largest: number, automatic: GreyWindow | null, stated: GreyWindow | null}} GreyLevels
 */

const STEPS = 400;
const PAUSE_MS = 120;
/** Narrowest window as a share of all values. */
const NARROWEST = 1 / 4000;
/** Values over a smaller range are no whole numbers. */
const FINE_RANGE = 100;

export class WindowControl {
  /** @type {GreyLevels | null} */
  #levels = null;
  /** @type {GreyWindow | null} */
  #window = null;
  #timer = 0;

  /** @param {(window: GreyWindow | null) => void} change null: the automatic window */
  constructor(change) {
    this.change = change;
    this.button = iconButton('levels', say('window.toggle'), () => this.toggle(), { 'aria-expanded': 'false', 'aria-controls': 'grey-levels', hidden: true });
    this.presets = h('div', { class: 'window-presets' });
    this.centre = this.#slider(say('window.centre'), (position) => ({ centre: this.#rounded(this.#scale.from + (this.#scale.to - this.#scale.from) * position) }));
    this.width = this.#slider(say('window.width'), (position) => ({ width: this.#rounded(this.#scale.least * (this.#scale.range / this.#scale.least) ** position) }));
    this.panel = h('div', { class: 'window-panel', id: 'grey-levels', role: 'group', 'aria-label': say('window.title'), hidden: true }, this.presets,
      ...[this.centre, this.width].map(({ name, input, output }) => h('label', { class: 'window-line' }, h('span', {}, name), input, output)));
  }

  /** For an image before its levels are loaded. */
  forget() {
    clearTimeout(this.#timer);
    this.#levels = null;
    this.#window = null;
    this.button.hidden = true;
    this.#open(false);
  }

  /** Offer the windows of an image; once loaded they stay. @param {GreyLevels} levels */
  offer(levels) {
    if (this.#levels !== null || !levels.deep || levels.automatic === null) return;
    this.#levels = levels;
    this.#window = levels.automatic;
    this.button.hidden = false;
    this.#show();
  }

  /** The focus goes into the panel, and back to its button. */
  toggle() {
    if (this.#levels === null) return;
    this.#open(this.panel.hidden);
    (this.panel.hidden ? this.button : this.presets.querySelector('button')).focus();
  }

  /** @param {boolean} open */
  #open(open) {
    this.panel.hidden = !open;
    this.button.setAttribute('aria-expanded', String(open));
  }

  /** @param {string} name @param {(position: number) => Partial<GreyWindow>} read the window of a position from 0 to 1 */
  #slider(name, read) {
    const input = h('input', { type: 'range', min: '0', max: String(STEPS), 'aria-label': name,
      on: { input: () => this.#choose({ ...this.#window, ...read(input.valueAsNumber / STEPS) }) } });
    return { name, input, output: h('output', { 'aria-hidden': 'true' }) };
  }

  /**
   * The centre moves around the automatic window: a bright marker may have a value far from all others. The width is a ratio on its
   * slider: a narrow window and one of all values can be met.
   */
  get #scale() {
    const { smallest, largest, automatic: { centre, width } } = this.#levels;
    const range = largest - smallest;
    return {
      range,
      from: Math.max(smallest, centre - 1.5 * width),
      to: Math.min(largest, centre + 1.5 * width),
      least: range < FINE_RANGE ? range * NARROWEST : Math.max(1, Math.round(range * NARROWEST)),
    };
  }

  /** @param {number} value */
  #rounded(value) {
    return this.#scale.range < FINE_RANGE ? Number(value.toPrecision(4)) : Math.round(value);
  }

  /** @param {GreyWindow} window */
  #choose(window) {
    this.#window = window;
    this.#show();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.change(window === this.#levels.automatic ? null : window), PAUSE_MS);
  }

  #show() {
    const { automatic, stated, smallest, largest } = this.#levels;
    const all = { centre: (smallest + largest) / 2, width: largest - smallest };
    const isStated = stated !== null && isSame(stated, automatic);
    const presets = [
      [isStated ? say('window.automaticStated') : say('window.automatic'), automatic],
      ...(stated === null || isStated ? [] : [[say('window.stated'), stated]]),
      [say('window.all'), all],
    ];
    const focused = this.presets.getRootNode().activeElement?.dataset.preset;
    fill(this.presets, ...presets.map(([name, window]) => h('button', { class: 'button', type: 'button', data: { preset: name }, 'aria-pressed': String(isSame(window, this.#window)),
      on: { click: () => this.#choose(window) } }, name)));
    if (focused) this.presets.querySelector(`[data-preset="${focused}"]`)?.focus();
    const { from, to, least, range } = this.#scale;
    this.#position(this.centre, (this.#window.centre - from) / (to - from), this.#window.centre);
    this.#position(this.width, Math.log(this.#window.width / least) / Math.log(range / least), this.#window.width);
  }

  /** @param {{input: HTMLInputElement, output: HTMLElement}} slider @param {number} position from 0 to 1, or beyond @param {number} value */
  #position({ input, output }, position, value) {
    const text = countText(this.#rounded(value));
    if (input.getRootNode().activeElement !== input) input.value = String(Math.round(position * STEPS));
    input.setAttribute('aria-valuetext', text);
    output.textContent = text;
  }
}

/** @param {GreyWindow} a @param {GreyWindow} b */
function isSame(a, b) {
  return a.centre === b.centre && a.width === b.width;
}

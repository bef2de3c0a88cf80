/** The tools above the films: how many, which window, their orientation, and searches by the active one. */

import { h } from '../shared/dom.js';
import { KEYS } from '../shared/keys.js';
import { LAYOUTS } from './address.js';
import { PRESETS } from './film/grey.js';
import { say } from './words.js';

/**
 * @typedef {import('./address.js').Layout} Layout
 * @typedef {import('./film/grey.js').Preset} Preset
 * @typedef {{layout: (layout: Layout) => void, step: () => void, preset: (preset: Preset) => void, invert: () => void, fit: () => void, actual: () => void, mirror: () => void,
 *   turn: () => void, reset: () => void, region: () => void, similar: () => void, help: () => void}} Actions
 */

const SQUARES = { 1: 'M3 4h14v12H3z', 2: 'M3 4h14v12H3zM10 4v12', 4: 'M3 4h14v12H3zM10 4v12M3 10h14' };
const SYMBOLS = {
  invert: 'M10 3a7 7 0 1 1 0 14a7 7 0 0 1 0-14zM10 3v14M10 6.5h4.5M10 10h7M10 13.5h4.5',
  fit: 'M3 7V3h4M13 3h4v4M17 13v4h-4M7 17H3v-4M6.5 6.5h7v7h-7z',
  mirror: 'M10 3v14M7.5 6v8L3 14zM12.5 6v8l4.5 0z',
  turn: 'M15.5 7.5A6.5 6.5 0 1 0 16.5 11M16.5 3.5v4.5H12',
  reset: 'M4.5 7.5A6.5 6.5 0 1 1 3.5 11M3.5 3.5v4.5H8M10 7v3.5l2.5 1.5',
};

export class Toolbar {
  /** @param {Actions} actions */
  constructor(actions) {
    this.layouts = LAYOUTS.map((layout) => drawn(SQUARES[layout], say(`layout.${layout}`), () => actions.layout(layout), { data: { layout } }));
    this.step = worded(say('step'), say('stepTitle'), actions.step, { 'aria-pressed': 'false', 'aria-keyshortcuts': KEYS.film.step[0] });
    this.presets = PRESETS.map((preset, index) => worded(say(`preset.${preset}`), `${say(`preset.${preset}`)} (${index + 1})`, () => actions.preset(preset), { data: { preset }, 'aria-keyshortcuts': KEYS.film.preset[index] }));
    this.invert = drawn(SYMBOLS.invert, say('invert'), actions.invert, { 'aria-pressed': 'false' });
    this.mirror = drawn(SYMBOLS.mirror, say('mirror'), actions.mirror, { 'aria-pressed': 'false' });
    this.region = worded(say('region'), say('regionTitle'), actions.region, { 'aria-pressed': 'false' });
    this.similar = worded(say('similar'), say('similarTitle'), actions.similar);
    /** Tools that need a film. */
    this.filmButtons = [...this.presets, this.invert, drawn(SYMBOLS.fit, say('fit'), actions.fit), worded('1:1', say('actual'), actions.actual), this.mirror,
      drawn(SYMBOLS.turn, say('turn'), actions.turn), drawn(SYMBOLS.reset, say('reset'), actions.reset), this.region, this.similar];
    const [invert, fit, actual, mirror, turn, reset, region, similar] = this.filmButtons.slice(PRESETS.length);
    this.element = h('div', { class: 'table-tools', role: 'toolbar', 'aria-label': say('table') },
      group(say('layout'), ...this.layouts, this.step), group(say('presets'), ...this.presets), group(null, invert, fit, actual, mirror, turn, reset), group(null, region, similar),
      worded('?', say('help'), actions.help, { class: 'tool-help' }));
  }

  /** @param {{layout: Layout, isInStep: boolean, active: import('./viewport.js').Viewport, preset: Preset | null, hasRegions: boolean}} shown */
  show({ layout, isInStep, active, preset, hasRegions }) {
    const press = (button, on) => button.setAttribute('aria-pressed', String(on));
    this.layouts.forEach((button) => press(button, button.dataset.layout === String(layout)));
    press(this.step, isInStep);
    this.presets.forEach((button) => press(button, button.dataset.preset === preset));
    press(this.invert, active.inverted);
    press(this.mirror, active.placement.mirrored);
    press(this.region, active.region.isOpen);
    for (const button of this.filmButtons) button.disabled = active.film === null;
    this.region.hidden = !hasRegions;
  }
}

/** @param {string | null} name @param {...HTMLElement} buttons */
function group(name, ...buttons) {
  return h('div', { class: 'tool-group', role: name !== null && 'group', 'aria-label': name }, ...buttons);
}

/** @param {string} text @param {string} title @param {() => void} act @param {Record<string, any>} [properties] */
function worded(text, title, act, { class: more = '', ...properties } = {}) {
  return h('button', { class: `table-tool worded ${more}`.trim(), type: 'button', title, 'aria-label': title, on: { click: act }, ...properties }, text);
}

/** @param {string} path @param {string} title @param {() => void} act @param {Record<string, any>} [properties] */
function drawn(path, title, act, properties = {}) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const line = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  svg.setAttribute('viewBox', '0 0 20 20');
  svg.setAttribute('aria-hidden', 'true');
  line.setAttribute('d', path);
  svg.append(line);
  return h('button', { class: 'table-tool', type: 'button', title, 'aria-label': title, on: { click: act }, ...properties }, svg);
}

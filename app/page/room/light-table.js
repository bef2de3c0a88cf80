/**
 * `<light-table>`: one, two or four films side by side, with their tools and the films of the active one's patient.
 *
 * Property: `api`. Events: `films-change`, when other films or another number of them are shown; `search-like` with `collection`, `id` and
 * `box`, when the reader wants films like one or like a part of it (null: the whole).
 */

import { fill, h } from '../shared/dom.js';
import { actionOf, keysDialog } from '../shared/keys.js';
import { LAYOUTS } from './address.js';
import { daysFrom, patientOf } from './facts.js';
import { isSameWindow, presetWindow, PRESETS, windowInStep } from './film/grey.js';
import { Priors } from './priors.js';
import { Toolbar } from './toolbar.js';
import { Viewport } from './viewport.js';
import { say } from './words.js';

/**
 * @typedef {import('./address.js').FilmName} FilmName
 * @typedef {import('./address.js').Layout} Layout
 * @typedef {import('./address.js').Table} Table
 * @typedef {import('./viewport.js').Change} Change
 */

const MOST = 4;
const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';
const COLOURS = 4;
const ZOOM_STEP = 1.25;
/** Pixels of the page that one press of an arrow moves a film or its window. */
const STEP = 24;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class LightTable extends HTMLElement {
  /** @type {import('./film/films-api.js').FilmsApi | null} */
  api = null;
  /** @type {Layout} */
  #layout = 2;
  #active = 0;
  #isInStep = false;
  /** Whether the active film fills the light table. */
  #isAlone = false;
  #isSpaceHeld = false;
  /** Patients in the order in which they were seen: a letter and a colour stay with one. @type {string[]} */
  #patients = [];
  /** @type {Map<string, boolean>} */
  #regions = new Map();

  connectedCallback() {
    if (this.childElementCount > 0) return;
    this.viewports = Array.from({ length: MOST }, () => new Viewport({
      active: (viewport) => this.#activate(this.viewports.indexOf(viewport)),
      changed: (viewport, change) => this.#follow(viewport, change),
      shown: (viewport) => this.#onShown(viewport),
      clear: (viewport) => this.#clear(viewport),
      alone: () => this.#toggleAlone(),
      region: (viewport, box) => this.#searchRegion(viewport, box),
      moves: () => this.#isSpaceHeld,
    }));
    this.toolbar = new Toolbar({
      layout: (layout) => this.#setLayout(layout),
      step: () => this.#toggleStep(),
      preset: (preset) => this.active.choosePreset(preset),
      invert: () => this.active.invert(), fit: () => this.active.fit(), actual: () => this.active.actualSize(), mirror: () => this.active.mirror(),
      turn: () => this.active.turn(), reset: () => this.active.reset(), region: () => this.#toggleRegion(), similar: () => this.#searchSimilar(), help: () => this.showKeys(),
    });
    this.warning = h('p', { class: 'table-warning', role: 'status' });
    this.priors = new Priors((name) => this.compare(name));
    this.keys = keysDialog();
    this.grid = h('div', { class: 'table-films' }, ...this.viewports.map(({ element }) => element));
    this.append(this.toolbar.element, this.warning, this.grid, this.priors.element, this.keys);
    this.#show();
  }

  /** What is shown where. @returns {Table} */
  get table() {
    return { layout: this.#layout, active: this.#active, films: this.#shown.map(({ name }) => name) };
  }

  get active() {
    return this.viewports[this.#active];
  }

  /** Show what an address says; films that are shown already stay as they are. @param {Table} table */
  restore({ layout, active, films }) {
    this.#layout = layout;
    this.#active = active;
    this.#isAlone = false;
    this.viewports.forEach((viewport, index) => {
      const name = films[index] ?? null;
      if (name === null) viewport.clear();
      else if (!isSameFilm(name, viewport.name)) viewport.show(this.api, name);
    });
    this.#show();
  }

  /** Show a film in the active viewport. @param {FilmName} name */
  open(name) {
    this.#put(this.#active, name);
  }

  /** Show a film next to the active one: in the next free viewport, otherwise in the next one. @param {FilmName} name */
  compare(name) {
    if (this.active.name === null) {
      this.open(name);
      return;
    }
    if (isSameFilm(name, this.active.name)) return;
    if (this.#layout === 1) this.#setLayout(2);
    const others = Array.from({ length: this.#layout - 1 }, (_, step) => (this.#active + 1 + step) % this.#layout);
    if (others.some((one) => isSameFilm(name, this.viewports[one].name))) return;
    this.#put(others.find((one) => this.viewports[one].name === null) ?? others[0], name);
  }

  showKeys() {
    this.keys.showModal();
  }

  focus() {
    this.active.element.focus();
  }

  /** @param {KeyboardEvent} event @returns {boolean} whether the key was for the light table */
  takesKey(event) {
    const { key, shiftKey, altKey, ctrlKey, metaKey } = event;
    const { active } = this;
    const arrow = ARROWS[key];
    if (ctrlKey || metaKey) return false;
    if (active.region.isOpen && active.region.takesKey(event)) {
      this.#showTools();
      return true;
    }
    if (key === 'Enter') {
      if (event.target !== active.element) return false;
      this.#toggleAlone();
      return true;
    }
    if (arrow) {
      this.#takeArrow(arrow, shiftKey, altKey);
      return true;
    }
    return this.takesAction(actionOf(event), key);
  }

  /** Do what a key means, wherever it was pressed. @param {string | null} action @param {string} key @returns {boolean} whether it is one of the light table's */
  takesAction(action, key) {
    const { active } = this;
    const act = {
      zoomIn: () => active.zoomBy(ZOOM_STEP), zoomOut: () => active.zoomBy(1 / ZOOM_STEP), fit: () => active.fit(), actual: () => active.actualSize(), invert: () => active.invert(),
      region: () => this.#toggleRegion(), preset: () => active.choosePreset(PRESETS[Number(key) - 1]), mirror: () => active.mirror(), turn: () => active.turn(), reset: () => active.reset(),
      step: () => this.#toggleStep(), layout: () => this.#setLayout(LAYOUTS[(LAYOUTS.indexOf(this.#layout) + 1) % LAYOUTS.length]), more: () => this.#searchSimilar(),
      remove: () => this.#clear(active), help: () => this.showKeys(),
    }[action ?? ''];
    act?.();
    return act !== undefined;
  }

  /** While Space is held, dragging moves the film. @param {boolean} isHeld */
  holdSpace(isHeld) {
    this.#isSpaceHeld = isHeld;
    this.grid.classList.toggle('moves', isHeld);
  }

  /** @param {number[]} arrow @param {boolean} isWindow @param {boolean} isMove */
  #takeArrow([right, down], isWindow, isMove) {
    if (isWindow) this.active.moveWindow(right * STEP, down * STEP);
    else if (isMove) this.active.moveBy(right * STEP, down * STEP);
    else {
      const columns = this.#layout === 1 ? 1 : 2;
      const [column, row] = [this.#active % columns + right, Math.floor(this.#active / columns) + down];
      if (column < 0 || column >= columns || row < 0 || row >= this.#layout / columns) return;
      this.#activate(row * columns + column);
      this.focus();
    }
  }

  get #shown() {
    return this.viewports.slice(0, this.#layout);
  }

  /** @param {number} index @param {FilmName} name */
  #put(index, name) {
    if (index !== this.#active) this.#isAlone = false;
    this.viewports[index].show(this.api, name);
    this.#changed();
  }

  /** @param {Viewport} viewport */
  #clear(viewport) {
    const hadFocus = viewport.element.contains(document.activeElement);
    viewport.clear();
    if (hadFocus) viewport.element.focus();
    this.#changed();
  }

  /** @param {Layout} layout */
  #setLayout(layout) {
    // The active film stays in view.
    if (this.#active >= layout) {
      const { name } = this.active;
      this.#active = 0;
      if (name !== null) this.viewports[0].show(this.api, name);
    }
    this.#layout = layout;
    this.#isAlone = false;
    for (const viewport of this.viewports.slice(layout)) viewport.clear();
    this.#changed();
  }

  /** @param {number} index */
  #activate(index) {
    if (index === this.#active) return;
    this.active.region.open(false);
    this.#active = index;
    this.#changed();
  }

  #changed() {
    this.#show();
    this.dispatchEvent(new CustomEvent('films-change', { bubbles: true }));
  }

  #toggleAlone() {
    this.#isAlone = !this.#isAlone && this.#layout > 1;
    this.#show();
    this.focus();
  }

  #toggleStep() {
    this.#isInStep = !this.#isInStep;
    if (this.#isInStep && this.active.film !== null) for (const change of /** @type {const} */ (['placement', 'window'])) this.#follow(this.active, change);
    this.#showTools();
  }

  /** @param {Viewport} viewport that the reader has changed @param {Change} change */
  #follow(viewport, change) {
    if (this.#isInStep) for (const other of this.#shown) if (other !== viewport) follow(other, viewport, change);
    this.#showTools();
    this.#label();
  }

  /** @param {Viewport} viewport */
  #onShown(viewport) {
    const lead = this.#shown.find((other) => other !== viewport && other.isReady);
    if (this.#isInStep && lead && viewport.isReady) for (const change of /** @type {const} */ (['placement', 'window'])) follow(viewport, lead, change);
    this.#show();
  }

  #toggleRegion() {
    const { active } = this;
    if (active.film === null || !this.#regions.get(active.film.collection)) return;
    active.region.open(!active.region.isOpen);
    active.element.focus();
    this.#showTools();
  }

  /** @param {Viewport} viewport @param {import('./region-frame.js').Box} box */
  #searchRegion(viewport, box) {
    const part = viewport.film && viewport.filmBox(box);
    this.#showTools();
    if (part) this.#search(viewport.name, part);
  }

  #searchSimilar() {
    if (this.active.film !== null) this.#search(this.active.name, null);
  }

  /** @param {FilmName} name @param {import('./region-frame.js').Box | null} box */
  #search({ collection, id }, box) {
    this.dispatchEvent(new CustomEvent('search-like', { bubbles: true, detail: { collection, id, box } }));
  }

  #show() {
    this.viewports.forEach(({ element }, index) => { element.hidden = index >= this.#layout || (this.#isAlone && index !== this.#active); });
    this.grid.dataset.layout = String(this.#isAlone ? 1 : this.#layout);
    this.#tag();
    this.#label();
    this.#showTools();
    const { film, hidden } = this.active;
    if (this.api !== null) this.priors.show(this.api, film, hidden, new Set(this.#shown.map(({ name }) => name?.id).filter(Boolean)));
    if (film !== null) this.#learnRegions(film.collection);
  }

  /** @param {string} collection */
  async #learnRegions(collection) {
    if (this.#regions.has(collection)) return;
    this.#regions.set(collection, false);
    // Its films were shown: it was described already.
    this.#regions.set(collection, (await this.api.collection(collection)).regions);
    this.#showTools();
  }

  /** Give each patient on the table a letter and a colour, and say where there are several. */
  #tag() {
    const films = this.#shown.filter(({ film }) => film !== null);
    const whose = new Map(films.map((viewport) => [viewport, patientOf(viewport.film.record)]));
    // Hashes of patients are the same in all collections, names of groups are not.
    const keyOf = (viewport, { field, value }) => JSON.stringify([field === 'group' && viewport.film.collection, value]);
    const patients = new Map([...whose].filter(([, patient]) => patient !== null).map(([viewport, patient]) => [viewport, keyOf(viewport, patient)]));
    // Those that are gone make room for others.
    this.#patients = this.#patients.map((key) => ([...patients.values()].includes(key) ? key : ''));
    for (const key of patients.values()) {
      if (this.#patients.includes(key)) continue;
      const free = this.#patients.indexOf('');
      this.#patients[free < 0 ? this.#patients.length : free] = key;
    }
    for (const viewport of films) {
      const index = this.#patients.indexOf(patients.get(viewport) ?? 'none');
      viewport.tag = index < 0 ? null : { letter: LETTERS[index], colour: index % COLOURS };
      viewport.days = viewport === films[0] || viewport.hidden.has('date') ? null : daysFrom(viewport.film.record, films[0].film.record);
      viewport.draw();
    }
    const letters = [...new Set(films.map(({ tag }) => tag?.letter).filter(Boolean))].sort();
    const isUnsure = films.length > 1 && films.some(({ tag }) => tag === null);
    this.warning.hidden = letters.length < 2 && !isUnsure;
    fill(this.warning, letters.length > 1 && say('severalPatients', { letters: letters.join(', ') }), letters.length > 1 && isUnsure && ' · ', isUnsure && say('unsurePatients'));
  }

  #label() {
    this.viewports.forEach((viewport, index) => viewport.label(index + 1, this.#layout, index === this.#active));
  }

  #showTools() {
    const { film, window } = this.active;
    const preset = film !== null && film.isReady && PRESETS.find((one) => isSameWindow(window, presetWindow(one, film.home, film.range, film.isCt)));
    this.toolbar.show({ layout: this.#layout, isInStep: this.#isInStep, active: this.active, preset: preset || null, hasRegions: film === null || this.#regions.get(film.collection) === true });
    this.grid.classList.toggle('marks-region', this.active.region.isOpen);
  }
}

/** Bring a viewport in step with another. @param {Viewport} viewport @param {Viewport} lead @param {Change} change */
function follow(viewport, lead, change) {
  if (viewport.film === null || lead.film === null) return;
  if (change === 'placement') {
    const { zoom, centre } = lead.placement;
    viewport.setPlacement({ ...viewport.placement, zoom, centre });
  } else viewport.setWindow(windowInStep(lead.window, lead.film.home, viewport.film.home), lead.inverted);
}

/** @param {FilmName} one @param {FilmName | null} other */
function isSameFilm(one, other) {
  return one.id === other?.id && one.collection === other.collection;
}

customElements.define('light-table', LightTable);

/** The panel of filters, built from the fields that a collection has. */

import { fill, h } from '../../shared/dom.js';
import { icon } from '../../shared/icons.js';
import { noFilter, withClause, wordOf } from './filter.js';

/**
 * @typedef {import('../api.js').Field} Field
 * @typedef {import('./filter.js').Filter} Filter
 * @typedef {import('./filter.js').Clause} Clause
 */

const PAUSE_MS = 350;
const MOST_BOXES = 8;
const ORDER = ['labels', 'split'];

export class FilterPanel {
  /** @type {Field[]} */
  #fields = [];
  /** @type {Filter} */
  #filter = noFilter();
  #timer = 0;

  /** @param {{change: (filter: Filter) => void, close: () => void}} actions */
  constructor(actions) {
    this.actions = actions;
    this.groups = h('div', { class: 'filter-groups' });
    this.clear = h('button', { class: 'button', type: 'button', on: { click: () => this.#set(noFilter()) } }, 'Clear all');
    this.closeButton = h('button', { class: 'tool', type: 'button', 'aria-label': 'Close the filters', title: 'Close (Esc)', on: { click: actions.close } }, icon('close'));
    this.element = h('aside', { class: 'filters', id: 'filters', 'aria-label': 'Filters', hidden: true,
      on: { keydown: (event) => event.key === 'Escape' && actions.close() } },
      h('header', { class: 'filters-head' }, h('h2', {}, 'Filters'), this.clear,
        this.closeButton),
      this.groups,
      h('footer', { class: 'filters-foot' }, h('button', { class: 'button primary', type: 'button', on: { click: actions.close } }, 'Show results')));
  }

  /** @param {Field[]} fields */
  setFields(fields) {
    this.#fields = fields.filter(isUseful).sort(byPlace);
    this.#draw();
  }

  /** Show a filter that was set elsewhere. @param {Filter} filter */
  show(filter) {
    if (filter === this.#filter) return;
    this.#filter = filter;
    this.#draw();
  }

  focus() {
    const first = this.groups.querySelector('input, select') ?? this.closeButton;
    first.focus();
  }

  #draw() {
    this.clear.hidden = Object.keys(this.#filter.clauses).length + this.#filter.other.length === 0;
    fill(this.groups,
      this.#fields.length === 0 && h('p', { class: 'quiet' }, 'The images of this collection carry nothing to filter by.'),
      ...this.#fields.map((field) => this.#group(field)),
      this.#filter.other.length > 0 && h('p', { class: 'quiet' }, 'A part of the filter came with the address and cannot be changed here.'));
  }

  /** @param {Field} field */
  #group(field) {
    const clause = this.#filter.clauses[field.name] ?? null;
    const change = (next) => this.#set(withClause(this.#filter, field.name, next));
    const control = isRange(field) ? rangeControl(field, clause, (next) => this.#setSoon(field.name, next)) : choiceControl(field, clause, change);
    return h('fieldset', { class: 'filter-group', data: { field: field.name } }, h('legend', {}, titleOf(field.name)), ...control);
  }

  /** @param {Filter} filter */
  #set(filter) {
    clearTimeout(this.#timer);
    const focused = this.element.getRootNode().activeElement?.dataset?.key;
    this.#filter = filter;
    this.#draw();
    if (focused) this.element.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    this.actions.change(filter);
  }

  /** Numbers are typed: wait for a pause, and leave the inputs alone. @param {string} name @param {Clause | null} clause */
  #setSoon(name, clause) {
    clearTimeout(this.#timer);
    this.#filter = withClause(this.#filter, name, clause);
    this.clear.hidden = false;
    this.#timer = setTimeout(() => this.actions.change(this.#filter), PAUSE_MS);
  }
}

/** A field with one value for all, or one for each image, narrows nothing. @param {Field} field */
function isUseful(field) {
  if (isRange(field)) return field.minimum !== null && field.minimum < field.maximum;
  const repeats = field.values.some(({ count }) => count > 1);
  return field.distinct > 1 && repeats && field.name !== 'id' && field.name !== 'group';
}

/** @param {Field} field */
function isRange(field) {
  return field.kinds.length === 1 && field.kinds[0] === 'number';
}

/** @param {Field} a @param {Field} b */
function byPlace(a, b) {
  const place = (field) => (field.name === ORDER[0] ? -1 : field.name === ORDER[1] ? 1 : 0);
  return place(a) - place(b) || a.name.localeCompare(b.name);
}

/** @param {string} name */
function titleOf(name) {
  return name.replaceAll('_', ' ');
}

/** @param {Field} field @param {Clause | null} clause @param {(clause: Clause | null) => void} change @returns {Node[]} */
function choiceControl(field, clause, change) {
  const chosen = new Set(clause?.any_of ?? (clause && 'eq' in clause ? [clause.eq] : []));
  const choose = (value, on) => {
    if (on) chosen.add(value);
    else chosen.delete(value);
    const values = [...chosen];
    change(values.length === 0 ? null : values.length === 1 ? { eq: values[0] } : { any_of: values });
  };
  const known = field.values.map(({ value }) => value);
  const unlisted = [...chosen].filter((value) => !known.includes(value)).map((value) => ({ value, count: null }));
  const shown = field.values.filter(({ value }, place) => place < MOST_BOXES || chosen.has(value));
  const rest = field.values.filter((entry) => !shown.includes(entry));
  const boxes = [...shown, ...unlisted].map(({ value, count }) => checkbox(field.name, value, count, chosen.has(value), choose));
  return rest.length > 0 ? [...boxes, moreValues(field, rest, choose)] : boxes;
}

/** @param {string} field @param {any} value @param {number | null} count @param {boolean} checked @param {(value: any, on: boolean) => void} choose */
function checkbox(field, value, count, checked, choose) {
  return h('label', { class: 'check' },
    h('input', { type: 'checkbox', checked, data: { key: `${field}=${value}` }, on: { change: (event) => choose(value, event.target.checked) } }),
    h('span', { class: 'check-name' }, wordOf(value)),
    count !== null && h('span', { class: 'check-count' }, count));
}

/** @param {Field} field @param {import('../api.js').FieldValue[]} rest @param {(value: any, on: boolean) => void} choose */
function moreValues(field, rest, choose) {
  const unseen = field.distinct - field.values.length;
  const option = ({ value, count }, place) => h('option', { value: String(place) }, `${wordOf(value)} (${count})`);
  return h('select', { class: 'select', 'aria-label': `More values of ${titleOf(field.name)}`, data: { key: `${field.name}+` },
    on: { change: (event) => choose(rest[Number(event.target.value)].value, true) } },
    h('option', { value: '', selected: true, disabled: true }, `${rest.length} more\u2026`), ...rest.map(option),
    unseen > 0 && h('option', { disabled: true }, `and ${unseen} rare ones`));
}

/** @param {Field} field @param {Clause | null} clause @param {(clause: Clause | null) => void} change @returns {Node[]} */
function rangeControl(field, clause, change) {
  const input = (name, value, hint) => h('input', { class: 'number', type: 'number', step: 'any', inputMode: 'decimal', value: value ?? '', placeholder: String(hint),
    'aria-label': `${titleOf(field.name)} ${name}`, data: { key: `${field.name} ${name}` }, on: { input: () => change(read()) } });
  const low = input('from', clause?.gte ?? clause?.gt, field.minimum);
  const high = input('to', clause?.lte ?? clause?.lt, field.maximum);
  const read = () => {
    const bounds = {};
    if (low.value !== '') bounds.gte = low.valueAsNumber;
    if (high.value !== '') bounds.lte = high.valueAsNumber;
    return Object.keys(bounds).length > 0 ? bounds : null;
  };
  return [h('div', { class: 'range' }, low, h('span', { 'aria-hidden': 'true' }, '\u2013'), high)];
}

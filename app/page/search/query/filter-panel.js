/** The panel of filters, built from the fields that a collection has. */

import { fill, h } from '../../shared/dom.js';
import { iconButton } from '../../shared/icon-button.js';
import { fieldTitle, marked } from '../../shared/terms.js';
import { language } from '../../shared/words.js';
import { say } from '../words.js';
import { clauseCount, noFilter, withClause, withFinding } from './filter.js';
import { choiceControl, isRange, rangeControl } from './filter-controls.js';
import { findingControls, showFindingCounts } from './finding-controls.js';

/**
 * @typedef {import('../api.js').Field} Field
 * @typedef {import('../api.js').FieldValue} FieldValue
 * @typedef {import('./filter.js').Filter} Filter
 * @typedef {import('./filter.js').Clause} Clause
 * @typedef {import('./finding-controls.js').CountedFinding} CountedFinding
 */

const PAUSE_MS = 350;
const ORDER = ['labels', 'split'];

export class FilterPanel {
  /** @type {Field[]} */
  #fields = [];
  /** @type {CountedFinding[]} */
  #counted = [];
  /** @type {Filter} */
  #filter = noFilter();
  #timer = 0;

  /**
   * @param {{change: (filter: Filter) => void, close: () => void, find?: (field: string, containing: string) => Promise<FieldValue[]>}} actions
   */
  constructor(actions) {
    this.actions = actions;
    this.groups = h('div', { class: 'filter-groups' });
    this.clear = h('button', { class: 'button', type: 'button', on: { click: () => this.#set(noFilter()) } }, say('filter.clear'));
    this.closeButton = iconButton('close', say('filter.close'), actions.close, { title: say('filter.closeKey') });
    this.element = h('aside', { class: 'filters', id: 'filters', 'aria-label': say('filter.title'), hidden: true,
      on: { keydown: (event) => event.key === 'Escape' && actions.close() } },
      h('header', { class: 'filters-head' }, h('h2', {}, say('filter.title')), this.clear,
        this.closeButton),
      this.groups,
      h('footer', { class: 'filters-foot' }, h('button', { class: 'button primary', type: 'button', on: { click: actions.close } }, say('filter.show'))));
  }

  /** @param {Field[]} fields @param {CountedFinding[]} findings */
  setFields(fields, findings) {
    this.#fields = fields.filter(isUseful).sort(byPlace);
    this.#counted = findings;
    this.#draw();
  }

  /** Show how many images have each value of a field now; inputs stay as they are. @param {Field} field */
  showCounts({ name, values, distinct }) {
    // If there are more values than are counted, a missing one may have images.
    const missing = distinct > values.length ? '' : 0;
    const counts = new Map(values.map(({ value, count }) => [`${name}=${value}`, count]));
    const group = this.groups.querySelector(`[data-field="${CSS.escape(name)}"]`);
    for (const check of group?.querySelectorAll('.check') ?? []) {
      const count = counts.get(check.querySelector('input').dataset.key) ?? missing;
      check.querySelector('.check-count').textContent = String(count);
      check.classList.toggle('none', count === 0);
    }
  }

  /** Show how many images say each thing of findings now. @param {CountedFinding[]} findings */
  showFindings(findings) {
    showFindingCounts([...this.groups.querySelectorAll('[data-field="finding"]')], findings);
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
    this.clear.hidden = clauseCount(this.#filter) === 0;
    fill(this.groups,
      this.#fields.length + this.#counted.length === 0 && h('p', { class: 'quiet' }, say('filter.none')),
      this.#counted.length + Object.keys(this.#filter.findings).length > 0 && this.#findings(),
      ...this.#fields.map((field) => this.#group(field)),
      this.#filter.other.length > 0 && h('p', { class: 'quiet' }, say('filter.other')));
  }

  #findings() {
    return h('fieldset', { class: 'filter-group', data: { field: 'finding' } }, h('legend', {}, say('filter.findings')),
      ...findingControls(this.#counted, this.#filter.findings, (finding, state) => this.#set(withFinding(this.#filter, finding, state))));
  }

  /** @param {Field} field */
  #group(field) {
    const clause = this.#filter.clauses[field.name] ?? null;
    const change = (next) => this.#set(withClause(this.#filter, field.name, next));
    const find = (containing) => this.actions.find(field.name, containing);
    const control = isRange(field) ? rangeControl(field, clause, (next) => this.#setSoon(field.name, next)) : choiceControl(field, clause, change, find);
    return h('fieldset', { class: 'filter-group', data: { field: field.name } }, h('legend', {}, marked(fieldTitle(field.name), field.date_shifted === null ? { sop: '' } : field)), ...control);
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

  /** Bounds are typed: wait for a pause, and leave the inputs alone. @param {string} name @param {Clause | null} clause */
  #setSoon(name, clause) {
    clearTimeout(this.#timer);
    this.#filter = withClause(this.#filter, name, clause);
    this.clear.hidden = false;
    this.#timer = setTimeout(() => this.actions.change(this.#filter), PAUSE_MS);
  }
}

/** A field with one value for all narrows nothing; one with a value for each image does where values can be looked for. @param {Field} field */
function isUseful(field) {
  if (isRange(field)) return field.minimum !== null && field.minimum < field.maximum;
  const repeats = field.values.some(({ count }) => count > 1);
  return field.distinct > 1 && (repeats || field.distinct > field.values.length) && field.name !== 'id';
}

/** @param {Field} a @param {Field} b */
function byPlace(a, b) {
  const rank = (field) => (field.name === ORDER[0] ? -1 : field.name === ORDER[1] ? 1 : 0);
  return rank(a) - rank(b) || fieldTitle(a.name).localeCompare(fieldTitle(b.name), language());
}

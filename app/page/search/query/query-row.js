/** The row below the field: how its text is matched, the field that hits are grouped by, and chips of the examples and the filter. */

import { fill, h } from '../../shared/dom.js';
import { iconButton } from '../../shared/icon-button.js';
import { regionMark } from './region-mark.js';
import { clauseCount, clauseText, fieldTitle, noFilter, withClause, withFinding } from './filter.js';

/**
 * @typedef {import('./filter.js').Filter} Filter
 * @typedef {import('./query.js').Matching} Matching
 * @typedef {import('./query.js').Query} Query
 * @typedef {import('./query.js').Side} Side
 */

/** @type {Record<Side, {title: string, name: string}>} */
const SIDES = { like: { title: 'More like', name: 'liked' }, unlike: { title: 'Less like', name: 'disliked' } };

/** @type {Record<keyof Matching, {name: string, title: string, key: string | null}>} */
const MATCHING = {
  likeness: { name: 'Likeness', title: 'Rank images by how well they fit the text, whatever words stand beside them', key: null },
  words: { name: 'Exact words', title: 'Look the words of the text up in texts and reports (w); without likeness, only images with one of them are shown', key: 'w' },
};

export class QueryRow {
  /** @type {string[]} */
  #fields = [];
  /** @type {string | null} */
  #group = null;

  /**
   * @param {{match: (kind: keyof Matching, on: boolean) => void, remove: (id: string) => void, clearExamples: () => void, open: (id: string) => void,
   *   thumbnail: (element: HTMLImageElement, id: string) => void, filter: (filter: Filter) => void, group: (field: string | null) => void, leave: () => void}} actions `leave` is called when the
   *   focus was on a chip and none is left
   */
  constructor(actions) {
    this.actions = actions;
    this.switches = { likeness: this.#switch('likeness'), words: this.#switch('words') };
    this.matching = h('div', { class: 'matching', role: 'group', 'aria-label': 'Match the text by' }, h('span', { 'aria-hidden': 'true' }, 'Match by'),
      ...Object.entries(MATCHING).map(([kind, { name, title }]) => h('label', { class: 'switch', title }, this.switches[kind], h('span', {}, name))));
    this.groups = h('select', { class: 'select group-by', 'aria-label': 'Group by', on: { change: () => actions.group(this.groups.value || null) } });
    this.grouping = h('label', { class: 'grouping', title: 'One image for each value of a field, such as a patient or a study' }, h('span', {}, 'Group by'), this.groups);
    this.examples = h('div', { class: 'chips examples', hidden: true });
    this.filters = h('div', { class: 'chips', hidden: true });
    this.element = h('div', { class: 'query-row' }, this.matching, this.grouping, this.examples, this.filters);
  }

  /** @param {string[]} fields that hits may be grouped by */
  setGroups(fields) {
    this.#fields = fields;
    this.#showGroups();
  }

  #showGroups() {
    const names = this.#group && !this.#fields.includes(this.#group) ? [...this.#fields, this.#group] : this.#fields;
    this.grouping.hidden = names.length === 0;
    fill(this.groups, h('option', { value: '' }, 'nothing'), ...names.map((name) => h('option', { value: name }, fieldTitle(name))));
    this.groups.value = this.#group ?? '';
  }

  /** @param {Query} query */
  showQuery({ text, picture, like, unlike, boxes, likeness, words, group }) {
    this.switches.likeness.checked = likeness;
    this.switches.words.checked = words;
    this.matching.hidden = picture !== null && !text;
    this.#group = group;
    this.#showGroups();
    this.examples.hidden = like.length + unlike.length === 0;
    fill(this.examples, like.length > 0 && this.#side('like', like, boxes), unlike.length > 0 && this.#side('unlike', unlike, {}),
      like.length + unlike.length > 1 && this.#clear('Clear examples', this.actions.clearExamples));
  }

  /** @param {Filter} filter */
  showFilter(filter) {
    const count = clauseCount(filter);
    this.filters.hidden = count === 0;
    const drop = (name) => this.actions.filter(withClause(filter, name, null));
    fill(this.filters,
      ...Object.entries(filter.clauses).map(([name, clause]) => this.#filterChip(`${fieldTitle(name)}: ${clauseText(clause)}`, () => drop(name))),
      ...Object.entries(filter.findings).map(([finding, state]) => this.#filterChip(`${finding}: ${state}`, () => this.actions.filter(withFinding(filter, finding, null)))),
      filter.other.length > 0 && this.#filterChip('further conditions', () => this.actions.filter({ ...filter, other: [] })),
      count > 1 && this.#clear('Clear all', () => this.actions.filter(noFilter())));
  }

  /** @param {keyof Matching} kind */
  #switch(kind) {
    const input = h('input', { type: 'checkbox', role: 'switch', 'aria-keyshortcuts': MATCHING[kind].key, on: { change: () => this.actions.match(kind, input.checked) } });
    return input;
  }

  /** @param {Side} side @param {string[]} ids @param {Record<string, import('./query.js').Box>} boxes */
  #side(side, ids, boxes) {
    const { title, name } = SIDES[side];
    return h('div', { class: `chips ${side}`, role: 'group', 'aria-label': title }, h('span', { class: 'chips-title' }, title),
      ...ids.map((id) => this.#example(id, name, boxes[id] ?? null)));
  }

  /** @param {string} id @param {string} name of its kind @param {import('./query.js').Box | null} box the part of it that is searched by */
  #example(id, name, box) {
    const said = box ? `part of ${id}` : id;
    const picture = h('img', { alt: '', on: { error: () => picture.remove() } });
    this.actions.thumbnail(picture, id);
    return h('span', { class: 'chip pictured' },
      h('button', { class: 'chip-open', type: 'button', title: `Open ${id}`, on: { click: () => this.actions.open(id) } },
        box ? h('span', { class: 'chip-region' }, picture, regionMark(box)) : picture, h('span', { class: 'chip-text' }, said)),
      this.#drop(`Remove the ${name} ${box ? `part of the image ${id}` : `image ${id}`}`, () => this.actions.remove(id)));
  }

  /** @param {string} text @param {() => void} act */
  #filterChip(text, act) {
    return h('span', { class: 'chip' }, h('span', { class: 'chip-text' }, text), this.#drop(`Remove the filter ${text}`, act));
  }

  /** @param {string} name @param {() => void} act */
  #drop(name, act) {
    return iconButton('close', name, (event) => this.#take(event, act), { class: 'chip-drop', title: 'Remove' });
  }

  /** @param {string} text @param {() => void} act */
  #clear(text, act) {
    return h('button', { class: 'link', type: 'button', on: { click: (event) => this.#take(event, act) } }, text);
  }

  /** The button goes with what it takes back: the focus moves to the cross at its place. @param {Event} event @param {() => void} act */
  #take(event, act) {
    const place = Math.max(0, this.#drops().indexOf(event.currentTarget));
    act();
    const left = this.#drops();
    if (left.length > 0) left[Math.min(place, left.length - 1)].focus();
    else this.actions.leave();
  }

  #drops() {
    return [...this.element.querySelectorAll('.chip-drop')];
  }
}

/** The row below the field: how its text is matched, the field that hits are grouped by, the order of a list, and chips of the examples and the filter. */

import { fill, h } from '../../shared/dom.js';
import { iconButton } from '../../shared/icon-button.js';
import { KEYS } from '../../shared/keys.js';
import { fieldTitle, findingTitle, stateTitle } from '../../shared/terms.js';
import { say } from '../words.js';
import { clauseCount, clauseText, noFilter, withClause, withFinding } from './filter.js';
import { isUnranked, SORTS } from './query.js';
import { regionMark } from './region-mark.js';

/**
 * @typedef {import('./filter.js').Filter} Filter
 * @typedef {import('./query.js').Matching} Matching
 * @typedef {import('./query.js').Query} Query
 * @typedef {import('./query.js').Side} Side
 */

/** Texts of examples. @type {Record<Side, {title: string, remove: string, removePart: string}>} */
const SIDES = {
  like: { title: 'row.like', remove: 'row.removeLike', removePart: 'row.removeLikePart' },
  unlike: { title: 'row.unlike', remove: 'row.removeUnlike', removePart: 'row.removeUnlikePart' },
};

/** Texts and keys of the switches. @type {Record<keyof Matching, {name: string, title: string, key: string | null}>} */
const MATCHING = {
  likeness: { name: 'row.likeness', title: 'row.likenessWhat', key: null },
  words: { name: 'row.words', title: 'row.wordsWhat', key: KEYS.page.words[0] },
};

export class QueryRow {
  /** @type {string[]} */
  #fields = [];
  /** @type {string | null} */
  #group = null;
  /** Whether the reader has chosen a group, or none. */
  groupChosen = false;
  /** Whether the reader has chosen how a text is matched. */
  matchingChosen = false;

  /**
   * @param {{match: (kind: keyof Matching, on: boolean) => void, remove: (id: string) => void, clearExamples: () => void, open: (id: string) => void,
   *   thumbnail: (element: HTMLImageElement, id: string) => void, filter: (filter: Filter) => void, search: (change: (query: Query) => Query) => void, leave: () => void}} actions `leave` is called when the
   *   focus was on a chip and none is left
   */
  constructor(actions) {
    this.actions = actions;
    this.switches = { likeness: this.#switch('likeness'), words: this.#switch('words') };
    this.matching = h('div', { class: 'matching', role: 'group', 'aria-label': say('row.matchTextBy') }, h('span', { 'aria-hidden': 'true' }, say('row.matchBy')),
      ...Object.entries(MATCHING).map(([kind, { name, title }]) => h('label', { class: 'switch', title: say(title) }, this.switches[kind], h('span', {}, say(name)))));
    this.groups = h('select', { class: 'select group-by', 'aria-label': say('row.groupBy'), on: { change: () => this.#chooseGroup() } });
    this.grouping = h('label', { class: 'grouping', title: say('row.groupWhat') }, h('span', {}, say('row.groupBy')), this.groups);
    this.sorts = h('select', { class: 'select', 'aria-label': say('row.sortBy'), on: { change: () => this.#chooseSort() } },
      h('option', { value: '' }, say('row.sort.none')), ...SORTS.map((name) => h('option', { value: name }, say(`row.sort.${name}`))));
    this.sorting = h('label', { class: 'grouping', title: say('row.sortWhat') }, h('span', {}, say('row.sortBy')), this.sorts);
    this.examples = h('div', { class: 'chips examples', hidden: true });
    this.filters = h('div', { class: 'chips', hidden: true });
    this.element = h('div', { class: 'query-row' }, this.matching, this.grouping, this.sorting, this.examples, this.filters);
  }

  /** @param {string[]} fields that hits may be grouped by */
  setGroups(fields) {
    this.#fields = fields;
    this.#showGroups();
  }

  /** @param {string | null} group */
  showGroup(group) {
    this.#group = group;
    this.#showGroups();
  }

  #chooseGroup() {
    this.groupChosen = true;
    const group = this.groups.value || null;
    this.actions.search((query) => ({ ...query, group }));
  }

  #chooseSort() {
    const sort = this.sorts.value || null;
    this.actions.search((query) => ({ ...query, sort }));
  }

  #showGroups() {
    const names = this.#group && !this.#fields.includes(this.#group) ? [...this.#fields, this.#group] : this.#fields;
    this.grouping.hidden = names.length === 0;
    fill(this.groups, h('option', { value: '' }, say('row.noGroup')), ...names.map((name) => h('option', { value: name }, fieldTitle(name))));
    this.groups.value = this.#group ?? '';
  }

  /** @param {Query} query */
  showQuery(query) {
    const { text, picture, like, unlike, boxes, likeness, words, group, sort } = query;
    this.switches.likeness.checked = likeness;
    this.switches.words.checked = words;
    this.matching.hidden = picture !== null && !text;
    this.showGroup(group);
    this.sorting.hidden = !isUnranked(query);
    this.sorts.value = sort ?? '';
    this.examples.hidden = like.length + unlike.length === 0;
    fill(this.examples, like.length > 0 && this.#side('like', like, boxes), unlike.length > 0 && this.#side('unlike', unlike, {}),
      like.length + unlike.length > 1 && this.#clear(say('row.clearExamples'), this.actions.clearExamples));
  }

  /** @param {Filter} filter */
  showFilter(filter) {
    const count = clauseCount(filter);
    this.filters.hidden = count === 0;
    const drop = (name) => this.actions.filter(withClause(filter, name, null));
    fill(this.filters,
      ...Object.entries(filter.clauses).map(([name, clause]) => this.#filterChip(`${fieldTitle(name)}: ${clauseText(clause)}`, () => drop(name))),
      ...Object.entries(filter.findings).map(([finding, state]) => this.#filterChip(`${findingTitle(finding)}: ${stateTitle(state)}`, () => this.actions.filter(withFinding(filter, finding, null)))),
      filter.other.length > 0 && this.#filterChip(say('row.otherFilter'), () => this.actions.filter({ ...filter, other: [] })),
      count > 1 && this.#clear(say('row.clearAll'), () => this.actions.filter(noFilter())));
  }

  /** @param {keyof Matching} kind */
  #switch(kind) {
    const input = h('input', { type: 'checkbox', role: 'switch', 'aria-keyshortcuts': MATCHING[kind].key, on: { change: () => this.actions.match(kind, input.checked) } });
    return input;
  }

  /** @param {Side} side @param {string[]} ids @param {Record<string, import('./query.js').Box>} boxes */
  #side(side, ids, boxes) {
    const title = say(SIDES[side].title);
    return h('div', { class: `chips ${side}`, role: 'group', 'aria-label': title }, h('span', { class: 'chips-title' }, title),
      ...ids.map((id) => this.#example(id, side, boxes[id] ?? null)));
  }

  /** @param {string} id @param {Side} side @param {import('./query.js').Box | null} box the part of it that is searched by */
  #example(id, side, box) {
    const label = box ? say('row.partOf', { id }) : id;
    const picture = h('img', { alt: '', on: { error: () => picture.remove() } });
    this.actions.thumbnail(picture, id);
    return h('span', { class: 'chip pictured' },
      h('button', { class: 'chip-open', type: 'button', title: say('row.open', { id }), on: { click: () => this.actions.open(id) } },
        box ? h('span', { class: 'chip-region' }, picture, regionMark(box)) : picture, h('span', { class: 'chip-text' }, label)),
      this.#drop(say(box ? SIDES[side].removePart : SIDES[side].remove, { id }), () => this.actions.remove(id)));
  }

  /** @param {string} text @param {() => void} act */
  #filterChip(text, act) {
    return h('span', { class: 'chip' }, h('span', { class: 'chip-text' }, text), this.#drop(say('row.removeFilter', { filter: text }), act));
  }

  /** @param {string} name @param {() => void} act */
  #drop(name, act) {
    return iconButton('close', name, (event) => this.#take(event, act), { class: 'chip-drop', title: say('row.remove') });
  }

  /** @param {string} text @param {() => void} act */
  #clear(text, act) {
    return h('button', { class: 'link', type: 'button', on: { click: (event) => this.#take(event, act) } }, text);
  }

  /** The button disappears with what it removes: the focus moves to the remove button in its position. @param {Event} event @param {() => void} act */
  #take(event, act) {
    const index = Math.max(0, this.#drops().indexOf(event.currentTarget));
    act();
    const left = this.#drops();
    if (left.length > 0) left[Math.min(index, left.length - 1)].focus();
    else this.actions.leave();
  }

  hasFocus() {
    return this.element.contains(this.element.getRootNode().activeElement);
  }

  #drops() {
    return [...this.element.querySelectorAll('.chip-drop')];
  }
}

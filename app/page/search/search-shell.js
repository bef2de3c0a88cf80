/** The frame of the search: the bar on top, the row below it, the panel, the results, and what covers them. */

import { fill, h } from '../shared/dom.js';
import { iconButton } from '../shared/icon-button.js';
import { icon } from '../shared/icons.js';
import { KEYS, keysDialog } from '../shared/keys.js';
import { clauseCount } from './query/filter.js';
import { say } from './words.js';

/** @typedef {import('./query/filter.js').Filter} Filter */

export class SearchShell {
  /**
   * @param {ShadowRoot} root
   * @param {{field: HTMLElement, row: HTMLElement, panel: HTMLElement, results: HTMLElement, dialog: HTMLElement, person: HTMLElement}} parts
   * @param {{collection: (name: string) => void, togglePanel: () => void}} actions
   */
  constructor(root, parts, actions) {
    this.picker = h('select', { class: 'select', 'aria-label': say('shell.collection'), on: { change: (event) => actions.collection(event.target.value) } });
    this.pickerPlace = h('span', { class: 'picker', hidden: true }, this.picker);
    this.filterCount = h('span', { class: 'badge', hidden: true });
    this.filterButton = h('button', { class: 'button', type: 'button', 'aria-label': say('shell.filters'), 'aria-expanded': 'false', 'aria-controls': 'filters', 'aria-keyshortcuts': KEYS.page.filters[0],
      on: { click: actions.togglePanel } }, icon('filter'), h('span', { class: 'filter-name' }, say('shell.filters')), this.filterCount);
    this.overlay = h('div', { class: 'drop-over', 'aria-hidden': 'true' }, h('div', { class: 'drop-card' }, icon('image'),
      h('strong', {}, say('shell.drop')), h('span', {}, say('shell.dropFormats'))));
    this.shortcuts = keysDialog();
    this.element = h('div', { class: 'shell' },
      h('div', { class: 'bar' }, h('slot', { name: 'brand' }), parts.field, h('div', { class: 'bar-end' }, this.pickerPlace, this.filterButton,
        iconButton('keyboard', say('shell.shortcuts'), () => this.showShortcuts(), { class: 'keys', title: say('shell.shortcutsKey') }),
        h('slot', { name: 'tools' }), parts.person)),
      parts.row,
      h('div', { class: 'body' }, parts.panel, parts.results),
      this.overlay);
    root.append(this.element, parts.dialog, this.shortcuts);
  }

  /** @param {Array<{name: string, count: number}>} collections @param {string | null} chosen @param {boolean} fixed */
  showCollections(collections, chosen, fixed) {
    const names = collections.map(({ name }) => name);
    if (chosen && !names.includes(chosen)) names.push(chosen);
    fill(this.picker, ...names.map((name) => h('option', { value: name, selected: name === chosen }, name)));
    this.pickerPlace.hidden = fixed || names.length < 2;
  }

  /** @param {Filter} filter */
  showFilter(filter) {
    const count = clauseCount(filter);
    this.filterCount.hidden = count === 0;
    this.filterCount.textContent = String(count);
    this.filterButton.setAttribute('aria-label', count > 0 ? say('shell.filtersSet', { count }) : say('shell.filters'));
  }

  /** @param {boolean} open */
  showPanelOpen(open) {
    this.filterButton.setAttribute('aria-expanded', String(open));
    this.element.classList.toggle('with-filters', open);
  }

  /** @param {boolean} over */
  showDrop(over) {
    this.overlay.classList.toggle('shown', over);
  }

  showShortcuts() {
    this.shortcuts.showModal();
  }
}

/** The frame of the search: the bar on top, the row below it, the panel, the results, and what lies over them. */

import { fill, h } from '../shared/dom.js';
import { iconButton } from '../shared/icon-button.js';
import { icon } from '../shared/icons.js';
import { clauseCount } from './query/filter.js';

const SHORTCUTS = [
  ['/', 'go to the search field'],
  ['\u2190 \u2191 \u2192 \u2193', 'walk through the images'],
  ['Enter', 'open the image'],
  ['m l', 'more like this, less like this'],
  ['y n', 'this is what I searched for, this is not'],
  ['w', 'exact words'],
  ['f', 'filters'],
  ['+ \u2212 0 1 i g', 'in an open image: zoom, fit, actual size, invert, grey levels of a film'],
  ['h b', 'in an open image: what matched, search a part of it'],
  ['Esc', 'close'],
];

/** @typedef {import('./query/filter.js').Filter} Filter */

export class SearchShell {
  /**
   * @param {ShadowRoot} root
   * @param {{field: HTMLElement, row: HTMLElement, panel: HTMLElement, results: HTMLElement, dialog: HTMLElement, person: HTMLElement}} parts
   * @param {{collection: (name: string) => void, togglePanel: () => void}} actions
   */
  constructor(root, parts, actions) {
    this.picker = h('select', { class: 'select', 'aria-label': 'Collection', on: { change: (event) => actions.collection(event.target.value) } });
    this.pickerPlace = h('span', { class: 'picker', hidden: true }, this.picker);
    this.filterCount = h('span', { class: 'badge', hidden: true });
    this.filterButton = h('button', { class: 'button', type: 'button', 'aria-label': 'Filters', 'aria-expanded': 'false', 'aria-controls': 'filters', 'aria-keyshortcuts': 'f',
      on: { click: actions.togglePanel } }, icon('filter'), h('span', { class: 'filter-name' }, 'Filters'), this.filterCount);
    this.overlay = h('div', { class: 'drop-over', 'aria-hidden': 'true' }, h('div', { class: 'drop-card' }, icon('image'),
      h('strong', {}, 'Drop to find images like this one'), h('span', {}, 'JPEG, PNG, WebP, AVIF, GIF, BMP, TIFF, DICOM, and HEIC where the service reads it')));
    this.shortcuts = shortcutDialog();
    this.element = h('div', { class: 'shell' },
      h('div', { class: 'bar' }, h('slot', { name: 'brand' }), parts.field, h('div', { class: 'bar-end' }, this.pickerPlace, this.filterButton,
        iconButton('keyboard', 'Keyboard shortcuts', () => this.showShortcuts(), { class: 'keys', title: 'Keyboard shortcuts (?)' }),
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
    this.filterButton.setAttribute('aria-label', count > 0 ? `Filters, ${count} set` : 'Filters');
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

function shortcutDialog() {
  const dialog = h('dialog', { class: 'box shortcuts', 'aria-label': 'Keyboard shortcuts' }, h('h2', {}, 'Keyboard'),
    h('dl', {}, ...SHORTCUTS.flatMap(([keys, act]) => [h('dt', {}, ...keys.split(' ').map((key) => h('kbd', {}, key))), h('dd', {}, act)])),
    h('form', { class: 'box-end', method: 'dialog' }, h('button', { class: 'button primary' }, 'Close')));
  dialog.addEventListener('click', (event) => event.target === dialog && dialog.close());
  return dialog;
}

/** The style sheets of the search, linked into its shadow tree. */

import { h } from '../shared/dom.js';

const SHEETS = ['../shared/theme.css', '../shared/controls.css', 'image-search.css', 'results/hit-grid.css', 'query/filter-panel.css', 'image/image-dialog.css'];

/**
 * @param {ShadowRoot} root
 * @returns {Promise<unknown>} settles when every sheet has loaded, or failed to
 */
export function linkStyles(root) {
  const links = SHEETS.map((name) => h('link', { rel: 'stylesheet', href: new URL(name, import.meta.url).href }));
  const loaded = links.map((link) => new Promise((settle) => {
    link.addEventListener('load', settle);
    link.addEventListener('error', settle);
  }));
  root.append(...links);
  return Promise.all(loaded);
}

/** The style sheets of the search, linked into its shadow tree. */

import { h } from './dom.js';

const SHEETS = ['theme.css', 'controls.css', 'image-search.css', 'hit-grid.css', 'filter-panel.css', 'image-dialog.css'];

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

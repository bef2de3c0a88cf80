/** A button that is an icon, named by its title. */

import { h } from './dom.js';
import { icon } from './icons.js';

/**
 * @param {Parameters<typeof icon>[0]} name @param {string} title @param {(event: Event) => void} act @param {Record<string, any>} [properties]
 * @returns {HTMLElement}
 */
export function iconButton(name, title, act, { class: more = '', ...properties } = {}) {
  return h('button', { class: `tool ${more}`.trim(), type: 'button', title, 'aria-label': title, on: { click: act }, ...properties }, icon(name));
}

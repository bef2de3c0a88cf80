/** The part of a picture on its thumbnail. */

import { h } from '../../shared/dom.js';

/** @param {import('./query.js').Box} box @returns {HTMLElement} to overlay on a picture that is not cropped */
export function regionMark({ x, y, width, height }) {
  const mark = h('span', { class: 'region-mark', 'aria-hidden': 'true' });
  Object.assign(mark.style, { left: `${100 * x}%`, top: `${100 * y}%`, width: `${100 * width}%`, height: `${100 * height}%` });
  return mark;
}

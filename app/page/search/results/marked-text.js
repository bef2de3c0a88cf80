/** A text with the words that were searched for marked in it. */

import { h } from '../../shared/dom.js';

/**
 * @param {string} text
 * @param {Array<[number, number]>} spans in code points, in order and apart
 * @returns {Array<Node | string>}
 */
export function markedText(text, spans) {
  const letters = Array.from(text);
  const part = (start, end) => letters.slice(start, end).join('');
  const parts = [];
  let place = 0;
  for (const [start, end] of spans) {
    if (start > place) parts.push(part(place, start));
    parts.push(h('mark', {}, part(start, end)));
    place = end;
  }
  if (place < letters.length) parts.push(part(place, letters.length));
  return parts;
}

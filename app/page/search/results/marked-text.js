/** Texts with the words that were searched for marked in them. */

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
  let position = 0;
  for (const [start, end] of spans) {
    if (start > position) parts.push(part(position, start));
    parts.push(h('mark', {}, part(start, end)));
    position = end;
  }
  if (position < letters.length) parts.push(part(position, letters.length));
  return parts;
}

/**
 * A whole text or report, with the sentence that matched, and its words wherever else they occur.
 *
 * @param {string} text @param {import('../api.js').Matched | null} matched the sentence, and the positions of words in it
 * @returns {Array<Node | string>}
 */
export function markedReport(text, matched) {
  if (!matched) return [text];
  const letters = Array.from(matched.text);
  const words = new Set(matched.spans.map(([start, end]) => letters.slice(start, end).join('').toLowerCase()));
  const around = (part) => markedText(part, spansOf(part, words));
  const start = text.indexOf(matched.text);
  if (start < 0) return around(text);
  return [...around(text.slice(0, start)), h('span', { class: 'matched-sentence' }, ...markedText(matched.text, matched.spans)), ...around(text.slice(start + matched.text.length))];
}

/** @param {string} text @param {ReadonlySet<string>} words in lower case @returns {Array<[number, number]>} positions of whole words, in code points */
function spansOf(text, words) {
  const spans = [];
  let [position, units] = [0, 0];
  for (const match of text.matchAll(/[\p{L}\p{N}\p{M}]+/gu)) {
    position += Array.from(text.slice(units, match.index)).length;
    units = match.index;
    if (words.has(match[0].toLowerCase())) spans.push([position, position + Array.from(match[0]).length]);
  }
  return spans;
}

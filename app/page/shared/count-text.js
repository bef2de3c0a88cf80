/** Counts, as a reader writes them. */

import { numberText } from './words.js';

/** @param {number} count @returns {string} */
export function countText(count) {
  return numberText(count);
}

/** Counts, as a reader writes them. */

/** @param {number} count @returns {string} */
export function countText(count) {
  return count.toLocaleString('en');
}

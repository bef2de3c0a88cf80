/** How a hit is put into words. */

/** @typedef {import('../api.js').Hit} Hit */

/**
 * A cosine with three decimals. It is a place in a ranking, so it is never turned into a percentage.
 *
 * @param {number} score
 * @returns {string}
 */
export function scoreText(score) {
  return score.toFixed(3).replace('-', '\u2212');
}

/** @param {Hit} hit @returns {string} what kind of number its score is */
export function kindText(hit) {
  return hit.score_kind.replace('_', ' ');
}

/** @param {Hit} hit @returns {boolean} whether a text and several examples can make one query for the model that found it */
export function combines(hit) {
  return hit.cosine_kind === 'cosine';
}

/** @param {Hit} hit @returns {boolean} whether its texts have any of the exact words that were asked for */
export function hasWords(hit) {
  return hit.found_by.includes('words');
}

/** @param {Hit} hit @returns {string} a tile in one sentence, for a screen reader */
export function summaryOf(hit) {
  const parts = [`Number ${hit.rank}`, `${kindText(hit)} ${scoreText(hit.score)}`, hasWords(hit) && 'exact words', ...hit.texts.slice(0, 1), ...hit.labels].filter(Boolean);
  return `${parts.map((part) => part.replace(/[\s.]+$/, '')).join('. ')}. Open.`;
}

/** @param {unknown} value @returns {string} */
export function metadataText(value) {
  if (Array.isArray(value)) return value.map(metadataText).join(', ');
  if (value === true) return 'yes';
  if (value === false) return 'no';
  return String(value);
}

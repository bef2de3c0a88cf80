/** How a hit is put into words. */

import { filmFacts, findingTitle, kindTitle, stateTitle, valueText } from '../../shared/terms.js';
import { dayText, numberText } from '../../shared/words.js';
import { STATES } from '../query/filter.js';
import { say } from '../words.js';

/** @typedef {import('../api.js').Hit} Hit */

/**
 * A cosine with three decimals. It is a position in a ranking, so it is never turned into a percentage.
 *
 * @param {number} score
 * @returns {string}
 */
export function scoreText(score) {
  return numberText(score, { minimumFractionDigits: 3, maximumFractionDigits: 3 }).replace('-', '\u2212');
}

/** @param {Hit} hit @returns {string} what kind of number its score is */
export function kindText(hit) {
  return kindTitle(hit.score_kind);
}

/** @param {Hit} hit @returns {Array<'like' | 'unlike'>} the kinds of examples that it can be: none where nothing is searched by likeness yet */
export function sidesOf(hit) {
  if (hit.cosine_kind === null) return [];
  return combines(hit) ? ['like', 'unlike'] : ['like'];
}

/** @param {Hit} hit @returns {boolean} whether a text and several examples can make one query for the model of the hit */
export function combines(hit) {
  return hit.cosine_kind === 'cosine';
}

/** @param {Hit} hit @returns {boolean} whether its texts have any of the exact words of the query */
export function hasWords(hit) {
  return hit.found_by.includes('keywords');
}

/** @param {Hit} hit @returns {string | null} the one text of its tile: that with the words, or its first */
export function textOf(hit) {
  return hit.matched?.text ?? hit.texts[0] ?? null;
}

/** @param {Hit} hit @param {ReadonlySet<string>} hidden fields that are not shown @returns {string[]} labels that its text does not say already */
export function labelsOf(hit, hidden) {
  const text = textOf(hit)?.toLowerCase();
  return hidden.has('labels') ? [] : hit.labels.filter((label) => label.toLowerCase() !== text);
}

/** @param {Hit} hit @returns {string[]} what its texts say of findings, but for what a label says already */
export function findingsOf({ findings, labels }) {
  const labelled = new Set(labels.map((label) => label.toLowerCase()));
  return STATES.flatMap((state) => findings[state].filter((finding) => state !== 'present' || !labelled.has(finding.toLowerCase())).map((finding) => `${findingTitle(finding)}: ${stateTitle(state)}`));
}

/** @param {Hit} hit @param {ReadonlySet<string>} hidden @returns {string} a tile in one sentence, for a screen reader */
export function summaryOf(hit, hidden) {
  const score = hit.score !== null && `${kindText(hit)} ${scoreText(hit.score)}`;
  const parts = [say('hit.number', { rank: hit.rank }), score, ...filmFacts(hit.metadata, hidden), hasWords(hit) && say('hit.words'), textOf(hit), ...labelsOf(hit, hidden), ...findingsOf(hit)].filter(Boolean);
  return say('hit.open', { facts: parts.map((part) => part.replace(/[\s.]+$/, '')).join('. ') });
}

/** @param {Hit} hit @param {string} field @returns {string | number | boolean | null} the value by which it is grouped; null where it has none */
export function groupValueOf(hit, field) {
  const value = { group: hit.group, labels: hit.labels, ...hit.metadata }[field];
  return (Array.isArray(value) ? value[0] : value) ?? null;
}

/** @param {unknown} value @returns {string} */
export function metadataText(value) {
  return Array.isArray(value) ? value.map(valueText).join(', ') : dayText(valueText(value));
}

/** The line above the hits: what was found, by which model, and how long it took. */

import { countText } from '../../shared/count-text.js';
import { fill, h } from '../../shared/dom.js';
import { hasWords, kindText, scoreText } from './hit.js';

// Images with words are counted up to here.
const MOST_COUNTED = 10_000;
const COSINE_MEANING = 'Cosine similarity runs from \u22121 to 1; higher is closer. It orders the images, and is no probability. Beside examples all may lie below 0.';
const FUSED_MEANING = 'The sum of 1 / (60 + place) over the orders by likeness, by exact words and by findings that have it. It orders the images, and is no probability.';

/**
 * @param {HTMLElement} line
 * @param {import('../api.js').HitPage} page the latest page
 * @param {import('../api.js').Hit[]} hits all hits shown
 */
export function showAnswer(line, page, hits) {
  const { served_by: by, took_ms: took } = page;
  if (isList(page)) {
    fill(line, h('strong', {}, listText(page, hits)), h('span', { class: 'answer-part', title: `Search ${millis(took.search)}` }, millis(took.total)));
    return;
  }
  const scores = hits.map((hit) => hit.score);
  const meaning = hits[0]?.score_kind === 'fused' ? FUSED_MEANING : COSINE_MEANING;
  const range = scores.length > 0 && `${kindText(hits[0])} ${scoreText(Math.max(...scores))} to ${scoreText(Math.min(...scores))}`;
  fill(line,
    h('strong', {}, `${page.next_cursor === null ? '' : 'Best '}${hits.length} ${hits.length === 1 ? 'image' : 'images'}`),
    range && h('span', { class: 'answer-part', title: meaning }, range),
    h('span', { class: 'answer-part', title: `Digest of the encoder: ${by.digest}` },
      by.model, h('span', { class: 'dim' }, ` \u00b7 generation ${by.generation} \u00b7 ${by.exact ? 'exact' : 'approximate'}`)),
    h('span', { class: 'answer-part', title: `Encoding ${millis(took.encode)}, search ${millis(took.search)}` }, millis(took.total)));
}

/** @param {import('../api.js').HitPage} page @returns {boolean} whether it was not ranked by likeness to anything */
export function isList({ count, hits: [first] }) {
  return count !== null || first?.score === null;
}

/** @param {import('../api.js').HitPage} page @param {import('../api.js').Hit[]} hits */
function listText({ count, hits: [first] }, hits) {
  const thing = (first?.group_size ?? null) === null ? 'image' : 'group';
  const number = count === null ? `over ${countText(MOST_COUNTED)}` : countText(count);
  const many = `${number} ${thing}${count === 1 ? '' : 's'}${first && hasWords(first) ? ' with the words' : ''}`;
  return hits.length === count ? many : `${countText(hits.length)} of ${many}`;
}

/** @param {import('../api.js').HitPage} page @param {import('../api.js').Hit[]} hits @returns {string} for the live region */
export function spokenAnswer(page, hits) {
  const more = page.next_cursor !== null;
  if (hits.length === 0) return 'No images found.';
  if (isList(page)) return `${listText(page, hits)}${more ? ', more can be loaded' : ''}.`;
  const best = hits[0];
  return `${hits.length} images${more ? ', more can be loaded' : ''}. Best ${kindText(best)} ${scoreText(best.score)}.`;
}

/** @param {number} duration @returns {string} */
function millis(duration) {
  return `${duration < 10 ? duration.toFixed(1) : Math.round(duration)} ms`;
}

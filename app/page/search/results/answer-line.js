/** The line above the hits: the hits, the model, and how long it took. */

import { countText } from '../../shared/count-text.js';
import { fill, h } from '../../shared/dom.js';
import { numberText } from '../../shared/words.js';
import { say } from '../words.js';
import { hasWords, kindText, scoreText } from './hit.js';

// Images with words are counted up to here.
const MOST_COUNTED = 10_000;
/**
 * @param {HTMLElement} line
 * @param {import('../api.js').HitPage} page the latest page
 * @param {import('../api.js').Hit[]} hits all hits shown
 */
export function showAnswer(line, page, hits) {
  const { served_by: by, took_ms: took } = page;
  if (isList(page)) {
    fill(line, h('strong', {}, listText(page, hits)), h('span', { class: 'answer-part', title: say('answer.searchTime', { time: millis(took.search) }) }, millis(took.total)));
    return;
  }
  const scores = hits.map((hit) => hit.score);
  const meaning = hits[0]?.score_kind === 'fused' ? say('answer.fusedMeaning') : say('answer.cosineMeaning');
  const range = scores.length > 0 && say('answer.range', { kind: kindText(hits[0]), most: scoreText(Math.max(...scores)), least: scoreText(Math.min(...scores)) });
  fill(line,
    h('strong', {}, page.next_cursor === null ? say('answer.all', { count: hits.length }) : say('answer.best', { count: hits.length })),
    range && h('span', { class: 'answer-part', title: meaning }, range),
    h('span', { class: 'answer-part', title: say('answer.digest', { digest: by.digest }) },
      by.model, h('span', { class: 'dim' }, say(by.exact ? 'answer.exact' : 'answer.approximate', { generation: by.generation }))),
    h('span', { class: 'answer-part', title: say('answer.times', { encoding: millis(took.encode), search: millis(took.search) }) }, millis(took.total)));
}

/** @param {import('../api.js').HitPage} page @returns {boolean} whether it was not ranked by likeness to anything */
export function isList({ count, hits: [first] }) {
  return count !== null || first?.score === null;
}

/** @param {import('../api.js').HitPage} page @param {import('../api.js').Hit[]} hits */
function listText({ count, hits: [first] }, hits) {
  const thing = (first?.group_size ?? null) === null ? 'image' : 'group';
  const some = hits.length === count ? '' : '.some';
  return say(`list.${thing}${first && hasWords(first) ? '.words' : ''}${some}`, {
    count: count ?? say('list.over', { number: countText(MOST_COUNTED) }), shown: countText(hits.length),
  });
}

/** @param {import('../api.js').HitPage} page @param {import('../api.js').Hit[]} hits @returns {string} for the live region */
export function spokenAnswer(page, hits) {
  const more = page.next_cursor !== null;
  if (hits.length === 0) return say('spoken.nothing');
  if (isList(page)) return say(more ? 'spoken.listMore' : 'spoken.list', { list: listText(page, hits) });
  const best = hits[0];
  return say(more ? 'spoken.rankedMore' : 'spoken.ranked', { count: hits.length, kind: kindText(best), score: scoreText(best.score) });
}

/** @param {number} duration @returns {string} */
function millis(duration) {
  const digits = duration < 10 ? 1 : 0;
  return say('unit.ms', { time: numberText(duration, { useGrouping: false, minimumFractionDigits: digits, maximumFractionDigits: digits }) });
}

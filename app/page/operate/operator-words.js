/** How models, generations and jobs are put into words. */

import { countText } from '../shared/count-text.js';
import { numberText } from '../shared/words.js';
import { say, term } from './words.js';

/**
 * @typedef {import('./operator-api.js').Generation} Generation
 * @typedef {import('./operator-api.js').Job} Job
 * @typedef {import('./operator-api.js').ModelVerdict} ModelVerdict
 */

const FIRST = ['rsum', 'precision_at_10', 'image_recall_at_1', 'image_recall_at_10'];
/** Texts of what became of retrainings. */
const BECAME = { promoted: 'job.tookOver', waiting: 'job.waits', rejected: 'job.notEmbedded' };

/** @param {string} digest */
export function shortDigest(digest) {
  return digest.slice(0, 12);
}

/** @param {number} figure @returns {string} with four digits that mean something, as `recoquest models` prints it */
export function figureText(figure) {
  return numberText(Number(figure.toPrecision(4)), { useGrouping: false, maximumFractionDigits: 20 });
}

/** @param {Record<string, number>} metrics @returns {Array<[string, number]>} those that say most first */
export function sortedMetrics(metrics) {
  const rank = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  return Object.entries(metrics).sort(([a], [b]) => rank(a) - rank(b) || a.localeCompare(b, 'en', { numeric: true }));
}

/** @param {Generation} generation @returns {'searched' | 'before' | 'ready' | 'incomplete'} */
export function standingOf({ state, missing, activated }) {
  if (state === 'active') return 'searched';
  if (missing > 0) return 'incomplete';
  return activated === null ? 'ready' : 'before';
}

/** @param {Generation} generation @returns {string} */
export function standingText(generation) {
  return say(`standing.${standingOf(generation)}`);
}

/** @param {Generation[]} generations @returns {Generation | null} the one that a roll back goes to */
export function generationBefore(generations) {
  const before = generations.filter(({ state, activated }) => state !== 'active' && activated !== null);
  return before.reduce((last, each) => (last === null || each.activated > last.activated ? each : last), null);
}

/** @param {ModelVerdict} judgement @returns {string} */
export function judgementText({ metric, before, after, images, held_out: split, passed, verdict }) {
  const failed = verdict === 'not enough to judge' ? 'judgement.tooFew' : 'judgement.failed';
  return say(passed ? 'judgement.passed' : failed, { metric, before: figureText(before), after: figureText(after), images, split });
}

/** @param {NonNullable<Generation['comparison']>} comparison @returns {string | null} */
export function comparisonText({ against, text_to_image: texts, held_out: heldOut }) {
  if (texts === null) return null;
  const k = Math.max(...Object.keys(texts.active).map(Number));
  const share = (figure) => numberText(figure, { minimumFractionDigits: 1, maximumFractionDigits: 1 });
  return say('generation.comparison', { k, active: share(texts.active[k]), against, here: share(texts.new[k]), texts: texts.queries, split: heldOut });
}

/** @param {Job} job @returns {string} */
export function progressText({ what, done, total, note }) {
  const of = { what, done: countText(done) };
  const text = total === null ? say('job.progress', of) : say('job.progressOf', { ...of, total: countText(total) });
  return [text, note].filter(Boolean).join(', ');
}

/** @param {Job} job @returns {string} what came out; empty: nothing to tell of */
export function outcomeText({ kind, result }) {
  if (kind === 'duplicates' && result) return groupsText(result);
  if (!result?.verdict) return '';
  if (result.verdict === 'unchanged') return say('job.noNewModel');
  const judged = result.judgement ? judgementText(result.judgement) : say('job.notJudged');
  return say(BECAME[result.verdict], { judgement: judged });
}

/** @param {Record<string, any>} result the result of a search for near-duplicates @returns {string} */
function groupsText({ groups, left_out: leftOut }) {
  const count = groups.length + leftOut.groups;
  return count === 0 ? say('job.noDuplicates') : say('job.duplicates', { count });
}

/** @param {Job} job @returns {string} the name of its kind */
export function kindText({ kind }) {
  return term(`kind.${kind}`, kind);
}

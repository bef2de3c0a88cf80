/** How models, generations and jobs are put into words. */

/**
 * @typedef {import('./operator-api.js').Generation} Generation
 * @typedef {import('./operator-api.js').Job} Job
 * @typedef {import('./operator-api.js').ModelVerdict} ModelVerdict
 */

const STANDINGS = { searched: 'searched now', before: 'searched before', ready: 'ready', incomplete: 'incomplete' };
const FIRST = ['rsum', 'precision_at_10', 'image_recall_at_1', 'image_recall_at_10'];

/** @param {string} digest */
export function shortDigest(digest) {
  return digest.slice(0, 12);
}

/** @param {number} figure @returns {string} with four digits that mean something, as `recoquest models` prints it */
export function figureText(figure) {
  return String(Number(figure.toPrecision(4)));
}

/** @param {Record<string, number>} metrics @returns {Array<[string, number]>} those that say most first */
export function sortedMetrics(metrics) {
  const place = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  return Object.entries(metrics).sort(([a], [b]) => place(a) - place(b) || a.localeCompare(b, 'en', { numeric: true }));
}

/** @param {Generation} generation @returns {'searched' | 'before' | 'ready' | 'incomplete'} */
export function standingOf({ state, missing, activated }) {
  if (state === 'active') return 'searched';
  if (missing > 0) return 'incomplete';
  return activated === null ? 'ready' : 'before';
}

/** @param {Generation} generation @returns {string} */
export function standingText(generation) {
  return STANDINGS[standingOf(generation)];
}

/** @param {Generation[]} generations @returns {Generation | null} the one that a roll back goes to */
export function generationBefore(generations) {
  const before = generations.filter(({ state, activated }) => state !== 'active' && activated !== null);
  return before.reduce((last, each) => (last === null || each.activated > last.activated ? each : last), null);
}

/** @param {ModelVerdict} judgement @returns {string} */
export function judgementText({ metric, before, after, images, held_out: split, passed }) {
  return `${metric} ${figureText(before)} \u2192 ${figureText(after)} on ${images} held-out images (${split}): ${passed ? 'passed' : 'did not pass'}`;
}

/** @param {NonNullable<Generation['comparison']>} comparison @returns {string | null} */
export function comparisonText({ against, text_to_image: texts, held_out: heldOut }) {
  if (texts === null) return null;
  const k = Math.max(...Object.keys(texts.active).map(Number));
  return `Recall@${k} ${texts.active[k].toFixed(1)} % in generation ${against}, ${texts.new[k].toFixed(1)} % here, by ${texts.queries} texts of held-out images (${heldOut})`;
}

/** @param {Job} job @returns {string} */
export function progressText({ what, done, total, note }) {
  const of = total === null ? '' : ` of ${total.toLocaleString('en')}`;
  return [`${what}: ${done.toLocaleString('en')}${of}`, note].filter(Boolean).join(', ');
}

/** @param {Record<string, any>} found the result of a search for near-duplicates @returns {string} */
export function groupsText({ groups, left_out: leftOut }) {
  const count = groups.length + leftOut.groups;
  if (count === 0) return 'There are no near-duplicates.';
  return `${count.toLocaleString('en')} ${count === 1 ? 'group' : 'groups'} of near-duplicates.`;
}

/** @param {string} stamp ISO 8601 @returns {string} in the reader's own time */
export function timeText(stamp) {
  return new Date(stamp).toLocaleString('en', { dateStyle: 'medium', timeStyle: 'short' });
}

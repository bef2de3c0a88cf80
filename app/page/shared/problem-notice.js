/** Says what went wrong, in the service's own words, and offers what may help. */

import { h } from './dom.js';
import { icon } from './icons.js';
import { parts, say } from './words.js';

/** @typedef {import('./http.js').ProblemError} ProblemError */

/**
 * @param {ProblemError} problem
 * @param {() => void} retry offered when the same search may work another time
 * @param {(() => void) | null} [clearFilter] offered when a filter may be what was wrong
 * @returns {HTMLElement}
 */
export function problemNotice(problem, retry, clearFilter = null) {
  const passing = problem.status < 400 || problem.status === 429 || problem.status >= 500;
  return h('div', { class: 'notice problem', role: 'alert' }, icon('warning'),
    h('h2', {}, problem.title),
    h('p', { lang: problem.lang }, problem.detail),
    problem.fields.length > 0 && h('p', { class: 'quiet' }, ...parts('notice.concerns', { fields: h('code', {}, problem.fields.join(', ')) })),
    passing && retryButton(problem.retryAfter, retry),
    problem.status === 422 && clearFilter && h('button', { class: 'button primary', type: 'button', on: { click: clearFilter } }, say('notice.clearFilters')),
    problem.status > 0 && h('p', { class: 'quiet small' }, statusText(problem)));
}

/** @param {ProblemError} problem */
function statusText({ status, requestId }) {
  return requestId ? say('notice.statusOf', { status, request: requestId }) : say('notice.status', { status });
}

/** A button that waits as long as the service requested. @param {number | null} seconds @param {() => void} retry */
function retryButton(seconds, retry) {
  const button = h('button', { class: 'button primary', type: 'button', on: { click: retry } }, say('notice.again'));
  let left = Math.min(seconds ?? 0, 120);
  if (left <= 0) return button;
  button.disabled = true;
  const tick = () => {
    button.textContent = left > 0 ? say('notice.againIn', { seconds: left }) : say('notice.again');
    button.disabled = left > 0;
    left -= 1;
    if (left >= -1 && button.disabled) setTimeout(tick, 1000);
  };
  tick();
  return button;
}

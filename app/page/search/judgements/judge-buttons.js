/** Two buttons that say whether a hit is what was searched for. */

import { h } from '../../shared/dom.js';
import { icon } from '../../shared/icons.js';
import { say } from '../words.js';

/**
 * @typedef {import('../api.js').Hit} Hit
 * @typedef {import('./judgements.js').Judgements} Judgements
 */

const VERDICTS = /** @type {const} */ ([
  { relevant: true, picture: 'right', title: 'judge.rightKey', label: 'judge.rightNumber', action: 'right' },
  { relevant: false, picture: 'wrong', title: 'judge.wrongKey', label: 'judge.wrongNumber', action: 'wrong' },
]);

/** @param {Hit} hit @param {Judgements} judgements @returns {HTMLElement | null} null if it cannot be judged */
export function judgeButtons(hit, judgements) {
  if (!judgements.taken) return null;
  const buttons = VERDICTS.map(({ relevant, picture, title, label }) => h('button', {
    class: `judge-button ${picture}`, type: 'button', title: say(title), 'aria-label': say(label, { rank: hit.rank }), data: { relevant },
    on: { click: () => judgements.say(hit.id, relevant) },
  }, icon(picture)));
  const element = h('span', { class: 'judge' }, ...buttons);
  pressJudged(element, judgements.of(hit.id));
  return element;
}

/** Show a judgement on the buttons inside an element. @param {Element} element @param {boolean | null} judgement */
export function pressJudged(element, judgement) {
  for (const button of element.querySelectorAll('.judge-button')) button.setAttribute('aria-pressed', String(button.dataset.relevant === String(judgement)));
}

/** @param {string | null} action of a key @returns {boolean | null} what it says of a hit; null: nothing */
export function verdictOf(action) {
  return VERDICTS.find((verdict) => verdict.action === action)?.relevant ?? null;
}

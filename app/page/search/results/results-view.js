/** The area of results: the landing, the hits, or a notice; and the button for more hits. */

import { fill, h } from '../../shared/dom.js';
import { icon } from '../../shared/icons.js';
import { problemNotice } from '../../shared/problem-notice.js';
import { say } from '../words.js';
import { isList, showAnswer, spokenAnswer } from './answer-line.js';
import { HitGrid } from './hit-grid.js';
import { combines, hasWords } from './hit.js';
import { landing } from './landing.js';
import { doubtNotice, noneHasWords, notKeptNotice, noWordsNotice, nothingFound, truncationNotice, unknownWordsNotice } from './notices.js';

const SKELETON_TILES = 12;

/**
 * @typedef {import('../api.js').Hit} Hit
 * @typedef {import('../api.js').HitPage} HitPage
 * @typedef {import('../../shared/http.js').ProblemError} ProblemError
 */

export class ResultsView {
  #isList = false;
  #hadFocus = false;

  /**
   * @param {ConstructorParameters<typeof HitGrid>[0] & {more: () => void, clearFilter: () => void, byLikeness: () => void,
   *   text: (text: string) => void, pick: () => void}} actions those of the grid, and of its surroundings
   * @param {import('../judgements/judgements.js').Judgements} judgements
   */
  constructor(actions, judgements) {
    this.actions = actions;
    this.grid = new HitGrid(actions, judgements);
    this.spoken = h('p', { class: 'unseen', role: 'status', 'aria-live': 'polite' });
    this.opening = h('div', { class: 'opening' });
    this.line = h('p', { class: 'answer' });
    this.above = h('div', { class: 'above' });
    this.notice = h('div', { class: 'notice-slot' });
    this.moreButton = h('button', { class: 'button', type: 'button', on: { click: actions.more } }, say('results.more'));
    this.below = h('div', { class: 'below' });
    this.element = h('section', { class: 'results', 'aria-label': say('results.title') },
      h('div', { class: 'progress', 'aria-hidden': 'true' }), this.opening, this.line, this.above, this.notice, this.grid.element, this.below, this.spoken);
  }

  /** Whether the model of the hits that are shown takes one text, image or example alone. */
  get takesOne() {
    return this.hits.length > 0 && !combines(this.hits[0]);
  }

  get hits() {
    return this.grid.hits;
  }

  /** Show how to begin above the list. @param {import('../api.js').Collection | null} collection null: nothing */
  showOpening(collection) {
    fill(this.opening, collection && landing(collection, this.actions));
  }

  /** Show one node instead of hits. @param {Node} node */
  showNotice(node) {
    this.#settle();
    const focused = this.grid.hasFocus();
    this.grid.clear();
    fill(this.opening);
    fill(this.line);
    fill(this.above);
    fill(this.below);
    fill(this.notice, node);
    if (focused) this.notice.querySelector('button')?.focus();
  }

  /**
   * The last hits stay, dimmed, until the answer is there; without any, grey tiles are shown, also for a list that a search follows.
   *
   * @param {boolean} forList
   */
  showSearching(forList) {
    this.element.setAttribute('aria-busy', 'true');
    this.spoken.textContent = say('spoken.searching');
    if (this.hits.length > 0 && this.#isList === forList) return;
    this.#hadFocus = this.grid.hasFocus();
    fill(this.above);
    fill(this.below);
    fill(this.notice);
    fill(this.line, h('span', { class: 'dim' }, say('answer.searching')));
    this.grid.showSkeleton(SKELETON_TILES);
  }

  /** @param {HitPage} page @param {{likeness: boolean} | null} words exact words were searched for, alone or in addition to likeness */
  showPage(page, words) {
    this.#settle();
    this.#isList = isList(page);
    fill(this.notice, page.hits.length === 0 && this.#nothing(page.query.filter !== null, words));
    const unknown = page.unknown_keywords ?? [];
    const wordless = words?.likeness && page.hits[0]?.score_kind === 'fused' && !page.hits.some(hasWords);
    fill(this.above, page.confident === false && page.hits.length > 0 && doubtNotice(), unknown.length > 0 && !wordless && unknownWordsNotice(unknown), wordless && noWordsNotice(), ...page.query.truncations.map(truncationNotice));
    const focused = this.grid.hasFocus() || (this.#hadFocus && document.activeElement === document.body);
    this.#hadFocus = false;
    this.grid.show(page.hits);
    if (focused) this.grid.focus(0);
    this.#showAround(page);
  }

  /** @param {boolean} filtered @param {{likeness: boolean} | null} words */
  #nothing(filtered, words) {
    return words?.likeness === false ? noneHasWords(filtered, this.actions.byLikeness) : nothingFound(filtered, this.actions.clearFilter);
  }

  showLoadingMore() {
    this.moreButton.disabled = true;
    this.moreButton.textContent = say('results.loading');
  }

  /** @param {HitPage} page */
  appendPage(page) {
    const first = this.hits.length;
    this.grid.append(page.hits);
    this.#showAround(page);
    this.grid.focus(first);
  }

  /** @param {ProblemError} problem @param {() => void} retry @param {boolean} [filtered] */
  showProblem(problem, retry, filtered = false) {
    this.showNotice(problemNotice(problem, retry, filtered ? this.actions.clearFilter : null));
    this.spoken.textContent = '';
  }

  /** The hits stay: only the next page failed. @param {ProblemError} problem @param {() => void} retry */
  showMoreProblem(problem, retry) {
    fill(this.below, problemNotice(problem, retry));
  }

  /** @param {{id: string, name: string}} kept an image that was saved, and the list */
  showSaved({ id, name }) {
    fill(this.above, h('p', { class: 'strip kept', role: 'status' }, icon('bookmark'), say('case.saved', { id, name })));
  }

  /** The hits stay, and a change of one is not kept. @param {ProblemError} problem */
  showNotKept(problem) {
    fill(this.above, notKeptNotice(problem));
  }

  /** @param {HitPage} page */
  #showAround(page) {
    this.moreButton.disabled = false;
    this.moreButton.textContent = say('results.more');
    fill(this.below, page.next_cursor !== null && this.moreButton);
    showAnswer(this.line, page, this.hits);
    this.spoken.textContent = spokenAnswer(page, this.hits);
  }

  #settle() {
    this.element.removeAttribute('aria-busy');
  }
}

/** The grid of hits: one tile an image, walked through with the arrow keys. */

import { fill, h } from '../../shared/dom.js';
import { iconButton } from '../../shared/icon-button.js';
import { icon } from '../../shared/icons.js';
import { actionOf } from '../../shared/keys.js';
import { fieldTitle, filmFacts, valueText } from '../../shared/terms.js';
import { judgeButtons, pressJudged, verdictOf } from '../judgements/judge-buttons.js';
import { say } from '../words.js';
import { findingsOf, groupValueOf, hasWords, kindText, labelsOf, scoreText, sidesOf, summaryOf, textOf } from './hit.js';
import { markedText } from './marked-text.js';

/** @typedef {import('../api.js').Hit} Hit */

const MOST_FINDINGS = 3;
/** Actions and texts of examples. */
const MARKS = /** @type {const} */ ({
  like: { action: 'more', name: 'hit.like', title: 'hit.likeKey', label: 'hit.likeNumber' },
  unlike: { action: 'less', name: 'hit.unlike', title: 'hit.unlikeKey', label: 'hit.unlikeNumber' },
});

export class HitGrid {
  /** @type {Hit[]} */
  hits = [];
  #active = 0;
  /** Fields that are not shown. @type {ReadonlySet<string>} */
  hidden = new Set();
  /** The field that the hits are grouped by. @type {string | null} */
  group = null;
  /** Whether the page around compares images with its own. */
  comparable = false;

  /**
   * @param {{picture: (element: HTMLImageElement, link: string) => void, compare: (hit: Hit) => void, open: (hit: Hit) => void, save: (hit: Hit) => void, details: (hit: Hit) => void, mark: (hit: Hit, side: import('../query/query.js').Side) => void,
   *   leave: () => void, others: (field: string, value: any) => void}} actions `mark` makes an example of a hit; `leave` is called when the
   *   arrows walk out over the top row; `others` shows the whole group of a hit
   * @param {import('../judgements/judgements.js').Judgements} judgements
   */
  constructor(actions, judgements) {
    this.actions = actions;
    this.judgements = judgements;
    this.element = h('ul', {
      class: 'grid', role: 'list', 'aria-label': say('results.found'),
      on: { keydown: (event) => this.#onKey(event), focusin: (event) => this.#onFocus(event) },
    });
  }

  /** @param {Hit[]} hits */
  show(hits) {
    this.hits = [...hits];
    this.#active = 0;
    this.element.removeAttribute('aria-hidden');
    fill(this.element, ...hits.map((hit) => this.#tile(hit)));
    this.#rove();
  }

  /** Add the next page. @param {Hit[]} hits */
  append(hits) {
    this.hits.push(...hits);
    this.element.append(...hits.map((hit) => this.#tile(hit)));
    this.#rove();
  }

  /** @param {ReadonlySet<string>} hidden fields that are not shown */
  hide(hidden) {
    this.hidden = hidden;
    if (hidden.size > 0 && this.hits.length > 0) this.show(this.hits);
  }

  clear() {
    this.show([]);
  }

  /** Grey tiles while the first answer is on its way. @param {number} count */
  showSkeleton(count) {
    this.hits = [];
    this.element.setAttribute('aria-hidden', 'true');
    const tile = () => h('li', { class: 'hit skeleton' }, h('span', { class: 'hit-mat' }), h('span', { class: 'bone' }), h('span', { class: 'bone short' }));
    fill(this.element, ...Array.from({ length: count }, tile));
  }

  hasFocus() {
    return this.element.contains(this.element.getRootNode().activeElement);
  }

  /** Move the keyboard's focus to a tile. @param {number} [index] */
  focus(index = this.#active) {
    const tile = this.element.children[index];
    if (!tile || this.hits.length === 0) return;
    this.#active = index;
    this.#rove();
    tile.querySelector('.hit-open').focus();
  }

  /** @param {string} id */
  focusImage(id) {
    const index = this.hits.findIndex((hit) => hit.id === id);
    if (index >= 0) this.focus(index);
  }

  /** Show the judgement of an image. @param {string} id */
  showJudged(id) {
    const tile = this.element.children[this.hits.findIndex((hit) => hit.id === id)];
    if (tile) pressJudged(tile, this.judgements.of(id));
  }

  /** @param {Hit} hit */
  #tile(hit) {
    const picture = h('img', {
      alt: '', loading: 'lazy', decoding: 'async', draggable: false,
      on: { error: (event) => event.target.replaceWith(h('span', { class: 'hit-lost' }, say('hit.noPicture'))) },
    });
    picture.setAttribute('draggable', 'false');
    this.actions.picture(picture, hit.links.thumbnail);
    const text = textOf(hit);
    const labels = labelsOf(hit, this.hidden);
    const findings = findingsOf(hit);
    const facts = filmFacts(hit.metadata, this.hidden);
    return h('li', { class: 'hit', data: { id: hit.id } },
      h('button', { class: 'hit-open', type: 'button', 'aria-label': summaryOf(hit, this.hidden), on: { click: () => this.actions.open(hit) } },
        h('span', { class: 'hit-mat' }, picture),
        h('span', { class: 'hit-line' },
          h('span', { class: 'hit-rank' }, hit.rank),
          hit.score !== null && h('span', { class: 'hit-score' }, scoreText(hit.score), ' ', h('small', {}, kindText(hit)))),
        facts.length > 0 && h('span', { class: 'hit-facts' }, facts.join(' \u00b7 ')),
        text !== null && h('span', { class: hit.matched ? 'hit-text matched' : 'hit-text' }, ...markedText(text, hit.matched?.spans ?? [])),
        labels.length + hasWords(hit) > 0 && h('span', { class: 'hit-labels' }, hasWords(hit) && h('span', { class: 'tag words' }, say('hit.words')),
          ...labels.map((label) => h('span', { class: 'tag' }, label))),
        findings.length > 0 && h('span', { class: 'hit-findings', title: findings.join('\n') }, findings.slice(0, MOST_FINDINGS).join(', '),
          findings.length > MOST_FINDINGS && say('hit.moreFindings', { count: findings.length - MOST_FINDINGS }))),
      hit.group_size > 1 && this.#others(hit),
      this.comparable && h('button', { class: 'link hit-details', type: 'button', 'aria-label': say('hit.detailsNumber', { rank: hit.rank }), on: { click: () => this.actions.details(hit) } }, say('hit.details')),
      this.comparable && h('button', { class: 'link hit-compare', type: 'button', 'aria-label': say('hit.compareNumber', { rank: hit.rank }), on: { click: () => this.actions.compare(hit) } }, say('hit.compare')),
      h('span', { class: 'hit-marks' }, ...sidesOf(hit).map((side) => this.#mark(hit, side))),
      h('span', { class: 'hit-ends' }, judgeButtons(hit, this.judgements),
        iconButton('bookmark', say('case.saveNumber', { rank: hit.rank }), () => this.actions.save(hit), { class: 'hit-save', title: say('case.saveKey') })));
  }

  /** @param {Hit} hit one of a group */
  #others(hit) {
    const { group } = this;
    const value = group === null ? null : groupValueOf(hit, group);
    const count = hit.group_size - 1;
    if (value === null) return h('span', { class: 'hit-others quiet' }, say('hit.others', { count }));
    const named = { field: fieldTitle(group), value: valueText(value) };
    return h('button', { class: 'link hit-others', type: 'button', title: say('hit.allWith', named), 'aria-label': say('hit.othersWith', { count, ...named }),
      on: { click: () => this.actions.others(group, value) } }, say(group === 'study' ? 'hit.othersOfStudy' : 'hit.othersOf', { count, value: named.value }));
  }

  /** @param {Hit} hit @param {import('../query/query.js').Side} side */
  #mark(hit, side) {
    const { name, title, label } = MARKS[side];
    return h('button', { class: `hit-mark ${side}`, type: 'button', title: say(title), 'aria-label': say(label, { rank: hit.rank }),
      on: { click: () => this.actions.mark(hit, side) } }, icon(side), h('span', {}, say(name)));
  }

  /** Only the active tile is in the tab order. */
  #rove() {
    [...this.element.children].forEach((tile, index) => {
      for (const button of tile.querySelectorAll('button')) button.tabIndex = index === this.#active ? 0 : -1;
    });
  }

  /** @param {FocusEvent} event */
  #onFocus(event) {
    const index = [...this.element.children].indexOf(event.target.closest('.hit'));
    if (index < 0 || index === this.#active) return;
    this.#active = index;
    this.#rove();
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.hits.length === 0) return;
    const hit = this.hits[this.#active];
    const action = actionOf(event);
    const side = sidesOf(hit).find((one) => MARKS[one].action === action);
    if (side) {
      event.preventDefault();
      this.actions.mark(hit, side);
      return;
    }
    if (action === 'save') {
      event.preventDefault();
      this.actions.save(hit);
      return;
    }
    if (action === 'compare' && this.comparable) {
      event.preventDefault();
      this.actions.compare(hit);
      return;
    }
    const verdict = verdictOf(action);
    if (verdict !== null && this.judgements.taken) {
      event.preventDefault();
      this.judgements.say(hit.id, verdict);
      return;
    }
    const target = this.#target(event.key);
    if (target === null) return;
    event.preventDefault();
    if (target < 0) this.actions.leave();
    else this.focus(Math.min(target, this.hits.length - 1));
  }

  /** @param {string} key @returns {number | null} the tile that a key leads to; negative above the first row */
  #target(key) {
    const columns = this.#columns();
    const last = this.hits.length - 1;
    switch (key) {
      case 'ArrowRight': return Math.min(this.#active + 1, last);
      case 'ArrowLeft': return Math.max(this.#active - 1, 0);
      case 'ArrowDown': return this.#active + columns <= last ? this.#active + columns : this.#lastRowTarget(columns);
      case 'ArrowUp': return this.#active - columns;
      case 'Home': return 0;
      case 'End': return last;
      default: return null;
    }
  }

  /** @param {number} columns */
  #lastRowTarget(columns) {
    const last = this.hits.length - 1;
    const onLastRow = Math.floor(this.#active / columns) === Math.floor(last / columns);
    return onLastRow ? this.#active : last;
  }

  #columns() {
    const tiles = [...this.element.children];
    const top = tiles[0].offsetTop;
    const second = tiles.findIndex((tile) => tile.offsetTop > top);
    return second < 0 ? tiles.length : second;
  }
}

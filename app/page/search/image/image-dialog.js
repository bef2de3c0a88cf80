/** The dialog with one image: large, with its texts, labels and metadata. */

import { fill, h } from '../../shared/dom.js';
import { iconButton } from '../../shared/icon-button.js';
import { icon } from '../../shared/icons.js';
import { actionOf } from '../../shared/keys.js';
import { fieldTitle, findingTitle, marked, priorMark, stateTitle } from '../../shared/terms.js';
import { judgeButtons, pressJudged, verdictOf } from '../judgements/judge-buttons.js';
import { STATES } from '../query/filter.js';
import { kindText, metadataText, scoreText, sidesOf } from '../results/hit.js';
import { markedReport } from '../results/marked-text.js';
import { say } from '../words.js';
import { ImageViewer } from './image-viewer.js';

/**
 * @typedef {import('../api.js').Hit} Hit
 * @typedef {import('../api.js').SearchApi} SearchApi
 * @typedef {import('../query/query.js').Side} Side
 * @typedef {{finding: string, state: import('../query/filter.js').State, prior: boolean}} Mention
 */

const SIDES = /** @type {const} */ ([
  { side: 'like', name: 'hit.like', title: 'hit.likeKey', action: 'more' }, { side: 'unlike', name: 'hit.unlike', title: 'hit.unlikeKey', action: 'less' },
]);

/** Media types of files that may have more than 8 bits. */
const DEEP_TYPES = ['image/png', 'image/tiff', 'application/dicom'];

export class ImageDialog {
  /** @type {string | null} */
  id = null;
  /** @type {Hit | null} */
  hit = null;
  /** Fields that are not shown. @type {ReadonlySet<string>} */
  hidden = new Set();
  /** @type {AbortController | null} */
  #request = null;

  /**
   * @param {{mark: (id: string, side: Side | null) => void, region: (id: string | null, box: import('../query/query.js').Box | null) => void, filter: (finding: string, state: import('../query/filter.js').State) => void, save: (id: string) => void, step: (by: number) => void, closed: (id: string) => void}} actions
   *   `mark` makes an example of an image, or takes it back; `region` searches by a part of an image, or of the picture that the reader brought
   * @param {import('../judgements/judgements.js').Judgements} judgements
   */
  constructor(actions, judgements) {
    this.actions = actions;
    this.judgements = judgements;
    this.viewer = new ImageViewer((box) => {
      const { id } = this;
      this.dismiss();
      actions.region(id, box);
    });
    this.heading = h('h2', { id: 'image-dialog-title', class: 'dialog-title' });
    this.facts = h('div', { class: 'dialog-facts' });
    this.previous = iconButton('previous', say('dialog.previous'), () => actions.step(-1));
    this.next = iconButton('next', say('dialog.next'), () => actions.step(1));
    this.element = h('dialog', { class: 'image-dialog', 'aria-labelledby': 'image-dialog-title',
      on: { keydown: (event) => this.#onKey(event), close: () => this.#onClose(), click: (event) => this.#onClick(event) } },
      h('div', { class: 'dialog-frame' }, this.viewer.element,
        h('section', { class: 'dialog-side' },
          h('header', { class: 'dialog-head' }, this.heading, this.previous, this.next,
            iconButton('close', say('dialog.close'), () => this.element.close())),
          this.facts)));
  }

  /**
   * @param {SearchApi} api
   * @param {string} collection
   * @param {string} id
   * @param {Hit | null} hit the hit that was opened; null for an image opened by its address
   * @param {{first: boolean, last: boolean, side: Side | null, box: import('../query/query.js').Box | null, regions: boolean, matched: ((signal: AbortSignal) => Promise<Blob>) | null}} options
   *   among the hits and the examples; `matched` asks for the overlay of what matched
   */
  async open(api, collection, id, hit, options) {
    this.#request?.abort();
    const request = (this.#request = new AbortController());
    this.id = id;
    this.side = options.side;
    this.hit = hit;
    this.sides = SIDES.filter(({ side: one }) => hit === null || sidesOf(hit).includes(one));
    this.heading.textContent = hit ? say('hit.number', { rank: hit.rank }) : say('dialog.image');
    this.previous.disabled = options.first;
    this.next.disabled = options.last;
    // A new tab brings no token.
    this.original = api.session.token === null ? api.contentAddress(collection, id) : null;
    this.viewer.show(api.renditionAddress(collection, id), hit?.texts[0] ?? id, api);
    if (options.regions) this.viewer.region.offer(options.box);
    else this.viewer.region.forget();
    if (options.matched) this.viewer.matched.offer(options.matched);
    else this.viewer.matched.forget();
    this.#showFacts(hit, hit ?? {}, 'loading');
    if (!this.element.open) this.element.showModal();
    try {
      const record = await api.image(collection, id, request.signal);
      if (request !== this.#request) return;
      this.#showFacts(hit, record, 'whole');
      if (DEEP_TYPES.includes(record.media_type)) this.#offerWindow(api, collection, id, request);
    } catch (error) {
      if (request === this.#request) this.#showFacts(hit, hit ?? {}, 'failed', error);
    }
  }

  /** Let a part be marked of the picture that the reader brought. @param {import('../query/query.js').Picture} picture @param {string} address @param {SearchApi} api */
  markPicture({ name, box = null }, address, api) {
    this.#request?.abort();
    this.#request = null;
    this.id = null;
    this.hit = null;
    this.sides = [];
    this.heading.textContent = name;
    this.previous.disabled = this.next.disabled = true;
    this.viewer.show(address, name, api);
    this.viewer.matched.forget();
    this.viewer.region.offer(box);
    fill(this.facts, h('p', { class: 'quiet' }, say('dialog.markPart')));
    this.element.showModal();
    this.viewer.region.toggle();
  }

  /** Without an answer the automatic window is the only one. @param {SearchApi} api @param {string} collection @param {string} id @param {AbortController} request */
  async #offerWindow(api, collection, id, request) {
    const levels = await api.levels(collection, id, request.signal).catch(() => null);
    if (levels !== null && request === this.#request) this.viewer.window.offer(levels);
  }

  /** Show the judgement of an image. @param {string} id */
  showJudged(id) {
    if (id === this.id) pressJudged(this.facts, this.judgements.of(id));
  }

  /** @param {{id: string, name: string}} kept an image that was saved, and the list */
  showSaved({ id, name }) {
    if (id !== this.id) return;
    this.facts.querySelector('.dialog-kept')?.remove();
    this.facts.querySelector('.dialog-actions').after(h('p', { class: 'dialog-kept quiet', role: 'status' }, say('case.saved', { id, name })));
  }

  /** Close without telling: another view takes over. */
  dismiss() {
    this.id = null;
    if (this.element.open) this.element.close();
  }

  /** @param {Hit | null} hit @param {any} record @param {'loading' | 'whole' | 'failed'} state @param {Error} [error] */
  #showFacts(hit, record, state, error) {
    const { texts = [], labels = [] } = record;
    fill(this.facts,
      hit && h('div', { class: 'dialog-hit' }, hit.score !== null && h('p', { class: 'dialog-score' }, h('strong', {}, scoreText(hit.score)), ` ${meaningOf(hit)}`),
        judgeButtons(hit, this.judgements)),
      h('div', { class: 'dialog-actions' },
        ...this.sides.map((entry) => this.#markButton(entry)),
        this.id !== null && h('button', { class: 'button save', type: 'button', title: say('case.saveKey'), on: { click: () => this.actions.save(this.id) } }, icon('bookmark'), say('case.save')),
        this.original !== null && h('a', { class: 'button original', href: this.original, target: '_blank', rel: 'noopener' }, icon('open'), say('dialog.original'))),
      texts.length > 0 && section(say('dialog.texts', { count: texts.length }), h('ul', { class: 'texts' }, ...texts.map((text) => h('li', {}, ...markedReport(text, hit?.matched))))),
      record.report && !texts.includes(record.report) && section(say('dialog.report'), h('p', { class: 'report' }, ...markedReport(record.report, hit?.matched))),
      labels.length > 0 && !this.hidden.has('labels') && section(say('dialog.labels'), h('p', { class: 'tags' }, ...labels.map((label) => h('span', { class: 'tag' }, label)))),
      record.findings?.length > 0 && section(say('dialog.findings'), this.#findings(record.findings)),
      section(say('dialog.details'), detailList(this.id, record, this.hidden)),
      state === 'loading' && h('p', { class: 'quiet' }, say('dialog.loading')),
      state === 'failed' && h('p', { class: 'dialog-problem', role: 'alert', lang: error?.lang }, error?.message));
  }

  /** @param {Mention[]} mentions */
  #findings(mentions) {
    const filter = (finding, state) => {
      this.dismiss();
      this.actions.filter(finding, state);
    };
    return h('ul', { class: 'tags findings', role: 'list' }, ...statesOf(mentions).map(({ finding, state, prior }) => h('li', {},
      h('button', { class: 'tag finding', type: 'button', data: { state }, title: say('dialog.sameFinding'), on: { click: () => filter(finding, state) } },
        `${findingTitle(finding)}: `, h('strong', {}, stateTitle(state)), prior && ' ', prior && priorMark()))));
  }

  /** @param {typeof SIDES[number]} entry */
  #markButton({ side, name, title }) {
    return h('button', { class: `button mark ${side}`, type: 'button', title: say(title), 'aria-pressed': String(this.side === side),
      on: { click: () => this.#mark(side) } }, icon(side), say(name));
  }

  /** @param {Side} side */
  #mark(side) {
    const { id, side: before } = this;
    this.dismiss();
    this.actions.mark(id, side === before ? null : side);
  }

  #onClose() {
    this.#request?.abort();
    this.#request = null;
    this.viewer.clear();
    const id = this.id;
    this.id = null;
    if (id !== null) this.actions.closed(id);
  }

  /** @param {MouseEvent} event */
  #onClick(event) {
    if (event.target === this.element) this.element.close();
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest('input, select')) return;
    if (this.viewer.takesKey(event)) event.preventDefault();
    else if (event.key === 'ArrowLeft' && !this.previous.disabled) this.actions.step(-1);
    else if (event.key === 'ArrowRight' && !this.next.disabled) this.actions.step(1);
    else {
      const action = actionOf(event);
      const entry = this.sides.find((one) => one.action === action);
      const verdict = verdictOf(action);
      if (action === 'save' && this.id !== null) this.actions.save(this.id);
      if (entry) this.#mark(entry.side);
      else if (verdict !== null && this.hit && this.judgements.taken) this.judgements.say(this.hit.id, verdict);
    }
  }
}

/** @param {Hit} hit @returns {string} what its score says */
function meaningOf(hit) {
  if (hit.score_kind === 'fused') {
    const orders = hit.found_by.map((order) => say(`order.${order}`)).join(say('joined.and'));
    return say('dialog.foundBy', { orders, score: scoreText(hit.cosine) });
  }
  return say('dialog.similarity', { kind: kindText(hit) });
}

/**
 * The one state of each finding in all texts of an image, as filters take it: present in one of them, else uncertain, else absent.
 *
 * @param {Mention[]} mentions
 * @returns {Mention[]} one a finding, `prior` where all of that state are
 */
function statesOf(mentions) {
  return [...new Set(mentions.map(({ finding }) => finding))].map((finding) => {
    const own = mentions.filter((mention) => mention.finding === finding);
    const state = STATES.find((one) => own.some((mention) => mention.state === one));
    return { finding, state, prior: own.every((mention) => mention.state !== state || mention.prior) };
  });
}

/** @param {string} title @param {Node} content */
function section(title, content) {
  return h('section', { class: 'dialog-section' }, h('h3', {}, title), content);
}

/** @param {string} id @param {any} record @param {ReadonlySet<string>} hidden fields that are not shown */
function detailList(id, record, hidden) {
  const entries = [['id', id]];
  if (record.width) entries.push(['size', say('dialog.pixels', { width: record.width, height: record.height })]);
  if (record.split) entries.push(['split', record.split]);
  if (record.group) entries.push(['group', record.group]);
  for (const [name, value] of Object.entries(record.metadata ?? {})) {
    if (entries.some(([shown]) => shown === name) || value === null || value === '') continue;
    if (name === 'date_shifted') continue;
    entries.push([name, name === 'date' ? marked(metadataText(value), record.metadata) : metadataText(value)]);
  }
  return h('dl', { class: 'details' }, ...entries.filter(([name]) => !hidden.has(name)).flatMap(([name, value]) => [h('dt', {}, fieldTitle(name)), h('dd', {}, value)]));
}

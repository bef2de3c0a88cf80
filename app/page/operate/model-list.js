/** The registered models with their metrics; each opens to its card. */

import { fill, h } from '../shared/dom.js';
import { problemFrom } from '../shared/http.js';
import { kindTitle } from '../shared/terms.js';
import { timeText } from '../shared/words.js';
import { figureText, judgementText, shortDigest, sortedMetrics, standingText } from './operator-words.js';
import { parts, say } from './words.js';

/**
 * @typedef {import('./operator-api.js').Model} Model
 * @typedef {import('./operator-api.js').ModelCard} ModelCard
 */

const SHOWN_METRICS = 4;

export class ModelList {
  /** @type {Set<string>} digests of the cards that are open */
  #opened = new Set();

  /** @param {{card: (digest: string) => Promise<ModelCard>}} actions */
  constructor(actions) {
    this.actions = actions;
    this.element = h('ul', { class: 'rows', role: 'list', data: { loading: say('page.loading') } });
  }

  /** @param {Model[]} models */
  show(models) {
    fill(this.element, ...models.map((model) => this.#model(model)),
      models.length === 0 && h('li', { class: 'empty' }, ...parts('models.none', { command: h('code', {}, 'recoquest models register') })));
  }

  /** @param {Model} model */
  #model(model) {
    const { name, digest, dim, score_kind: kind, metrics, loaded, collections } = model;
    const card = h('div', { class: 'card' });
    const details = h('details', { open: this.#opened.has(digest), on: { toggle: () => this.#toggle(details, digest, card) } },
      h('summary', { 'aria-label': say('models.cardOf', { name, digest: shortDigest(digest) }) }, say('models.card')), card);
    return h('li', { class: 'row', data: { digest } }, h('div', { class: 'row-main' },
      h('p', { class: 'row-head' }, h('strong', {}, name), h('code', { title: digest }, shortDigest(digest)),
        loaded && h('span', { class: 'tag', data: { state: 'searched' } }, say('models.loaded'))),
      h('ul', { class: 'figures', role: 'list' }, ...sortedMetrics(metrics).slice(0, SHOWN_METRICS).map(([metric, figure]) =>
        h('li', {}, h('strong', {}, figureText(figure)), ' ', metric))),
      h('p', { class: 'quiet small' }, collections.length > 0
        ? say('models.searchedIn', { dim, kind: kindTitle(kind), collections: collections.join(', ') }) : say('models.notSearched', { dim, kind: kindTitle(kind) })),
      details));
  }

  /** @param {HTMLDetailsElement} details @param {string} digest @param {HTMLElement} card */
  async #toggle(details, digest, card) {
    if (!details.open) {
      this.#opened.delete(digest);
      return;
    }
    this.#opened.add(digest);
    try {
      fill(card, ...cardOf(await this.actions.card(digest)));
    } catch (error) {
      const { detail, lang } = problemFrom(error);
      fill(card, h('p', { class: 'bad', role: 'alert', lang }, detail));
    }
  }
}

/** @param {ModelCard} card @returns {Node[]} */
function cardOf({ digest, created, metrics, towers, training, retraining, generations }) {
  const facts = [
    [say('card.digest'), digest],
    [say('card.made'), timeText(created)],
    [say('card.towers'), towers ? Object.entries(towers).map(([kind, tower]) => `${kind}: ${tower}`).join(', ') : say('card.noTowers')],
    [say('card.recipe'), training && `${training.recipe}: ${training.description}`],
    [say('card.objective'), training?.objective],
    [say('card.length'), training && lengthText(training)],
    [say('card.beganWith'), training?.started_from && say('card.model', { digest: shortDigest(training.started_from) })],
    [say('card.retraining'), retraining && retrainingText(retraining)],
    [say('card.judgement'), retraining?.judgement && judgementText(retraining.judgement)],
    [say('card.generations'), generations.map((each) => `${each.collection} ${each.number} (${standingText(each)})`).join(', ') || say('card.noGenerations')],
  ].filter(([, value]) => value);
  return [
    h('dl', { class: 'facts' }, ...facts.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)])),
    h('dl', { class: 'facts metrics' }, ...sortedMetrics(metrics).flatMap(([name, figure]) => [h('dt', {}, name), h('dd', {}, figureText(figure))])),
  ];
}

/** @param {NonNullable<ModelCard['training']>} training */
function lengthText({ epochs, steps, batch_size: batch, seed }) {
  return epochs === null ? say('card.steps', { steps, batch, seed }) : say('card.epochs', { epochs, batch, seed });
}

/** @param {NonNullable<ModelCard['retraining']>} retraining */
function retrainingText({ job, collection, verdict }) {
  return say('card.retrainedBy', { job, collection, verdict: say(`verdict.${verdict}`) });
}

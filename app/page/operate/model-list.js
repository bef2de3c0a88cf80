/** The registered models with their metrics; each opens to its card. */

import { fill, h } from '../shared/dom.js';
import { problemFrom } from '../shared/http.js';
import { figureText, judgementText, shortDigest, sortedMetrics, standingText, timeText } from './operator-words.js';

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
    this.element = h('ul', { class: 'rows', role: 'list' });
  }

  /** @param {Model[]} models */
  show(models) {
    fill(this.element, ...models.map((model) => this.#model(model)),
      models.length === 0 && h('li', { class: 'empty' }, 'No model is registered yet. ', h('code', {}, 'recoquest models register'), ' adds one.'));
  }

  /** @param {Model} model */
  #model(model) {
    const { name, digest, dim, score_kind: kind, metrics, loaded, collections } = model;
    const place = h('div', { class: 'card' });
    const details = h('details', { open: this.#opened.has(digest), on: { toggle: () => this.#toggle(details, digest, place) } },
      h('summary', { 'aria-label': `Card of ${name}, ${shortDigest(digest)}` }, 'Card'), place);
    return h('li', { class: 'row', data: { digest } }, h('div', { class: 'row-main' },
      h('p', { class: 'row-head' }, h('strong', {}, name), h('code', { title: digest }, shortDigest(digest)),
        loaded && h('span', { class: 'tag', data: { state: 'searched' } }, 'loaded')),
      h('ul', { class: 'figures', role: 'list' }, ...sortedMetrics(metrics).slice(0, SHOWN_METRICS).map(([metric, figure]) =>
        h('li', {}, h('strong', {}, figureText(figure)), ' ', metric))),
      h('p', { class: 'quiet small' }, `${dim} numbers, ${kind.replace('_', ' ')}; ${collections.length > 0 ? `searched with in ${collections.join(', ')}` : 'no collection is searched with it'}`),
      details));
  }

  /** @param {HTMLDetailsElement} details @param {string} digest @param {HTMLElement} place */
  async #toggle(details, digest, place) {
    if (!details.open) {
      this.#opened.delete(digest);
      return;
    }
    this.#opened.add(digest);
    try {
      fill(place, ...cardOf(await this.actions.card(digest)));
    } catch (error) {
      fill(place, h('p', { class: 'bad', role: 'alert' }, problemFrom(error).detail));
    }
  }
}

/** @param {ModelCard} card @returns {Node[]} */
function cardOf({ digest, created, metrics, towers, training, retraining, generations }) {
  const facts = [
    ['Digest', digest],
    ['Made', timeText(created)],
    ['Towers', towers ? Object.entries(towers).map(([kind, tower]) => `${kind}: ${tower}`).join(', ') : 'its files are missing'],
    ['Recipe', training && `${training.recipe}: ${training.description}`],
    ['Objective', training?.objective],
    ['Length', training && lengthText(training)],
    ['Began with', training?.started_from && `model ${shortDigest(training.started_from)}`],
    ['Retraining', retraining && `job ${retraining.job} on ${retraining.collection}, ${retraining.verdict}`],
    ['Judgement', retraining?.judgement && judgementText(retraining.judgement)],
    ['Generations', generations.map((each) => `${each.collection} ${each.number} (${standingText(each)})`).join(', ') || 'none'],
  ].filter(([, value]) => value);
  return [
    h('dl', { class: 'facts' }, ...facts.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)])),
    h('dl', { class: 'facts metrics' }, ...sortedMetrics(metrics).flatMap(([name, figure]) => [h('dt', {}, name), h('dd', {}, figureText(figure))])),
  ];
}

/** @param {NonNullable<ModelCard['training']>} training */
function lengthText({ epochs, steps, batch_size: batch, seed }) {
  return `${epochs === null ? `${steps} steps` : `${epochs} epochs`} of batches of ${batch}, seed ${seed}`;
}

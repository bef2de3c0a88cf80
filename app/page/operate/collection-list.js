/** The collections with their generations: which one is searched, and which could be. */

import { countText } from '../shared/count-text.js';
import { fill, h } from '../shared/dom.js';
import { timeText } from '../shared/words.js';
import { comparisonText, generationBefore, shortDigest, standingOf, standingText } from './operator-words.js';
import { parts, say } from './words.js';

/**
 * @typedef {import('./operator-api.js').Collection} Collection
 * @typedef {import('./operator-api.js').Generation} Generation
 */

export class CollectionList {
  /**
   * @param {{mayChange: () => boolean, activate: (collection: Collection, generation: Generation) => void,
   *   rollBack: (collection: Collection, before: Generation) => void, embed: (collection: Collection, generation: Generation) => void,
   *   retrain: (collection: Collection) => void}} actions
   */
  constructor(actions) {
    this.actions = actions;
    this.element = h('div', { class: 'collections' });
  }

  /** @param {Collection[]} collections */
  show(collections) {
    fill(this.element, ...collections.map((collection) => this.#collection(collection)),
      collections.length === 0 && h('p', { class: 'empty' }, ...parts('collections.none', { command: h('code', {}, 'recoquest index') })));
  }

  /** @param {Collection} collection */
  #collection(collection) {
    const { name, count, generations } = collection;
    const before = generationBefore(generations);
    const searched = generations.some(({ state }) => state === 'active');
    return h('section', { class: 'collection', 'aria-label': name },
      h('header', { class: 'row-head' }, h('h3', {}, name), h('span', { class: 'quiet' }, say('collections.images', { count })),
        this.actions.mayChange() && h('span', { class: 'row-end' },
          searched && button(say('collections.retrain'), say('collections.retrainOne', { name }), () => this.actions.retrain(collection)),
          before && button(say('collections.rollBack'), say('collections.rollBackOne', { name, number: before.number }), () => this.actions.rollBack(collection, before)))),
      h('ul', { class: 'rows', role: 'list' }, ...generations.map((generation) => this.#generation(collection, generation))));
  }

  /** @param {Collection} collection @param {Generation} generation */
  #generation(collection, generation) {
    const { number, model, digest, images, texts, missing, created, activated, comparison } = generation;
    const standing = standingOf(generation);
    const compared = comparison && comparisonText(comparison);
    const names = { number, name: collection.name };
    const counts = { images: countText(images), texts: countText(texts) };
    return h('li', { class: 'row', data: { generation: number } },
      h('div', { class: 'row-main' },
        h('p', { class: 'row-head' }, h('strong', {}, say('generation.number', { number })), h('span', { class: 'tag', data: { state: standing } }, standingText(generation))),
        h('p', {}, model, ' ', h('code', { title: digest }, shortDigest(digest)), h('span', { class: 'quiet' },
          missing > 0 ? say('generation.countsMissing', { ...counts, missing: countText(missing) }) : say('generation.counts', counts))),
        compared && h('p', { class: 'small' }, compared),
        h('p', { class: 'quiet small' }, [created && say('generation.made', { time: timeText(created) }), activated && say('generation.activated', { time: timeText(activated) })].filter(Boolean).join(', '))),
      this.actions.mayChange() && h('div', { class: 'row-end' },
        (standing === 'ready' || standing === 'before') && button(say('generation.activate'), say('generation.activateOne', names), () => this.actions.activate(collection, generation)),
        standing === 'incomplete' && button(say('generation.embed'), say('generation.embedOne', names), () => this.actions.embed(collection, generation))));
  }
}

/** @param {string} text @param {string} name for a screen reader @param {() => void} click */
function button(text, name, click) {
  return h('button', { class: 'button', type: 'button', 'aria-label': name, on: { click } }, text);
}

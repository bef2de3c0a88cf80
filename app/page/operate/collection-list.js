/** The collections with their generations: which one is searched, and which could be. */

import { countText } from '../shared/count-text.js';
import { fill, h } from '../shared/dom.js';
import { comparisonText, generationBefore, shortDigest, standingOf, standingText, timeText } from './operator-words.js';

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
      collections.length === 0 && h('p', { class: 'empty' }, 'There is no collection yet. Index one with ', h('code', {}, 'recoquest index'), '.'));
  }

  /** @param {Collection} collection */
  #collection(collection) {
    const { name, count, generations } = collection;
    const before = generationBefore(generations);
    const searched = generations.some(({ state }) => state === 'active');
    return h('section', { class: 'collection', 'aria-label': name },
      h('header', { class: 'row-head' }, h('h3', {}, name), h('span', { class: 'quiet' }, `${countText(count)} ${count === 1 ? 'image' : 'images'}`),
        this.actions.mayChange() && h('span', { class: 'row-end' },
          searched && button('Retrain', `Retrain the model of ${name}`, () => this.actions.retrain(collection)),
          before && button('Roll back', `Roll ${name} back to generation ${before.number}`, () => this.actions.rollBack(collection, before)))),
      h('ul', { class: 'rows', role: 'list' }, ...generations.map((generation) => this.#generation(collection, generation))));
  }

  /** @param {Collection} collection @param {Generation} generation */
  #generation(collection, generation) {
    const { number, model, digest, images, texts, missing, created, activated, comparison } = generation;
    const standing = standingOf(generation);
    const compared = comparison && comparisonText(comparison);
    const place = `generation ${number} of ${collection.name}`;
    return h('li', { class: 'row', data: { generation: number } },
      h('div', { class: 'row-main' },
        h('p', { class: 'row-head' }, h('strong', {}, `Generation ${number}`), h('span', { class: 'tag', data: { state: standing } }, standingText(generation))),
        h('p', {}, model, ' ', h('code', { title: digest }, shortDigest(digest)), h('span', { class: 'quiet' },
          ` \u00b7 ${countText(images)} images${missing > 0 ? `, ${countText(missing)} missing` : ''}, ${countText(texts)} texts`)),
        compared && h('p', { class: 'small' }, compared),
        h('p', { class: 'quiet small' }, [created && `made ${timeText(created)}`, activated && `activated ${timeText(activated)}`].filter(Boolean).join(', '))),
      this.actions.mayChange() && h('div', { class: 'row-end' },
        (standing === 'ready' || standing === 'before') && button('Activate', `Activate ${place}`, () => this.actions.activate(collection, generation)),
        standing === 'incomplete' && button('Embed the rest', `Embed the rest of ${place}`, () => this.actions.embed(collection, generation))));
  }
}

/** @param {string} text @param {string} name for a screen reader @param {() => void} click */
function button(text, name, click) {
  return h('button', { class: 'button', type: 'button', 'aria-label': name, on: { click } }, text);
}

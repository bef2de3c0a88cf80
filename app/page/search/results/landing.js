/** What the page shows before a search: how to begin, and examples from the collection. */

import { countText } from '../../shared/count-text.js';
import { h } from '../../shared/dom.js';

const MOST_TEXTS = 6;
const MOST_PICTURES = 8;

/**
 * @param {import('../api.js').Collection} collection
 * @param {{text: (text: string) => void, like: (id: string) => void, pick: () => void, thumbnail: (id: string) => string}} actions
 * @returns {HTMLElement}
 */
export function landing(collection, actions) {
  const { examples } = collection;
  const texts = examples.filter(({ text }) => text).slice(0, MOST_TEXTS);
  const pictures = examples.slice(0, MOST_PICTURES);
  return h('section', { class: 'landing' },
    h('h1', {}, 'Find images by what they show'),
    h('p', { class: 'lead' }, `Describe what you are looking for in ${countText(collection.count)} ${collection.count === 1 ? 'image' : 'images'}, or drop an image anywhere here to find others like it. `,
      h('button', { class: 'link', type: 'button', on: { click: actions.pick } }, 'Choose a file'), '.'),
    texts.length > 0 && h('h2', {}, 'Try a sentence from this collection'),
    texts.length > 0 && h('ul', { class: 'example-texts', role: 'list' }, ...texts.map(({ text }) =>
      h('li', {}, h('button', { class: 'example', type: 'button', title: text, on: { click: () => actions.text(text) } }, h('span', {}, text))))),
    pictures.length > 0 && h('h2', {}, 'Or start from one of its images'),
    pictures.length > 0 && h('ul', { class: 'example-pictures', role: 'list' }, ...pictures.map(({ id }) =>
      h('li', {}, h('button', { class: 'example-picture', type: 'button', 'aria-label': `Images like ${id}`, title: `Images like ${id}`, on: { click: () => actions.like(id) } },
        picture(actions.thumbnail(id)))))));
}

/** @param {string} address */
function picture(address) {
  const image = h('img', { src: address, alt: '', loading: 'lazy', decoding: 'async', on: { error: () => image.remove() } });
  image.setAttribute('draggable', 'false');
  return image;
}

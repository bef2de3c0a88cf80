/** The head of the whole collection before a search: how to begin, and sentences to try. */

import { countText } from '../../shared/count-text.js';
import { h } from '../../shared/dom.js';

const MOST_TEXTS = 4;

/**
 * @param {import('../api.js').Collection} collection
 * @param {{text: (text: string) => void, pick: () => void}} actions
 * @returns {HTMLElement}
 */
export function landing(collection, actions) {
  const { examples, count, generation } = collection;
  if (generation === null) {
    return h('section', { class: 'landing' },
      h('h1', {}, 'This collection cannot be searched by likeness yet'),
      h('p', { class: 'lead' }, 'Its indexing has not finished. Until then look around, filter, and match by exact words.'));
  }
  const texts = examples.filter(({ text }) => text).slice(0, MOST_TEXTS);
  return h('section', { class: 'landing' },
    h('h1', {}, 'Find images by what they show'),
    h('p', { class: 'lead' }, `Describe what you are looking for in ${countText(count)} ${count === 1 ? 'image' : 'images'}, or drop an image anywhere here to find others like it. `,
      h('button', { class: 'link', type: 'button', on: { click: actions.pick } }, 'Choose a file'), '.'),
    texts.length > 0 && h('ul', { class: 'example-texts', role: 'list', 'aria-label': 'Sentences of this collection to try' }, ...texts.map(({ text }) =>
      h('li', {}, h('button', { class: 'example', type: 'button', title: text, on: { click: () => actions.text(text) } }, h('span', {}, text))))));
}

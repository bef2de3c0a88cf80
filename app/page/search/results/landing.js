/** The head of the whole collection before a search: how to begin, and sentences to try. */

import { h } from '../../shared/dom.js';
import { parts, say } from '../words.js';

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
      h('h1', {}, say('landing.notYet')),
      h('p', { class: 'lead' }, say('landing.notYetWhy')));
  }
  const texts = examples.filter(({ text }) => text).slice(0, MOST_TEXTS);
  return h('section', { class: 'landing' },
    h('h1', {}, say('landing.title')),
    h('p', { class: 'lead' }, ...parts('landing.lead', { count, choose: h('button', { class: 'link', type: 'button', on: { click: actions.pick } }, say('landing.choose')) })),
    texts.length > 0 && h('ul', { class: 'example-texts', role: 'list', 'aria-label': say('landing.examples') }, ...texts.map(({ text }) =>
      h('li', {}, h('button', { class: 'example', type: 'button', title: text, on: { click: () => actions.text(text) } }, h('span', {}, text))))));
}

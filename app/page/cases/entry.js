/** An image of a case list: its picture, its details, the note, and its actions. */

import { h } from '../shared/dom.js';
import { filmFacts } from '../shared/terms.js';
import { timeText } from '../shared/words.js';
import { say } from './words.js';

/**
 * @param {import('./cases-api.js').SavedCase} saved @param {ReadonlySet<string>} hidden fields that are not shown
 * @param {{picture: (element: HTMLImageElement, link: string) => void, open: () => void, compare: () => void, edit: () => void, takeOut: () => void}} actions
 * @returns {HTMLElement}
 */
export function entry({ image, note, saved, saved_by: by }, hidden, actions) {
  const { id } = image;
  const picture = h('img', { alt: '', loading: 'lazy', decoding: 'async', on: { error: () => picture.replaceWith(h('span', { class: 'quiet small' }, say('entry.lost'))) } });
  actions.picture(picture, image.links.thumbnail);
  const facts = filmFacts(image.metadata, hidden);
  const when = timeText(saved);
  return h('li', { class: 'entry', data: { id } },
    h('button', { class: 'entry-open', type: 'button', 'aria-label': say('entry.open', { id }), on: { click: actions.open } }, picture),
    h('div', { class: 'entry-text' },
      h('p', { class: 'entry-facts' }, facts.length > 0 ? facts.join(' \u00b7 ') : id),
      note !== '' && h('p', { class: 'entry-note' }, note),
      h('p', { class: 'quiet small' }, by === null ? when : say('entry.by', { name: by, time: when })),
      h('p', { class: 'entry-acts' },
        h('button', { class: 'link', type: 'button', 'aria-label': say('entry.compareWith', { id }), on: { click: actions.compare } }, say('entry.compare')),
        h('button', { class: 'link entry-edit', type: 'button', 'aria-label': say(note === '' ? 'entry.noteOn' : 'entry.editOf', { id }), on: { click: actions.edit } }, say(note === '' ? 'entry.note' : 'entry.edit')),
        h('button', { class: 'link', type: 'button', 'aria-label': say('entry.removeOf', { id }), on: { click: actions.takeOut } }, say('entry.remove')))));
}

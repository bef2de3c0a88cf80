/** The saved cases of the collection that is searched, below the films. */

import { h } from '../shared/dom.js';
import { say } from './words.js';

/** @typedef {{collection: string, id: string}} Film */

export class Cases {
  /**
   * @param {{collection: () => string | null, open: (film: Film) => void, compare: (film: Film) => void}} actions
   * @param {HTMLButtonElement} button that shows and hides them
   */
  constructor(actions, button) {
    this.actions = actions;
    this.button = button;
    this.book = document.createElement('case-book');
    this.book.setAttribute('theme', 'dark');
    this.element = h('section', { id: 'cases', 'aria-label': say('cases'), hidden: true }, this.book);
    this.book.addEventListener('image-select', (event) => {
      event.preventDefault();
      actions.open(filmOf(event));
    });
    this.book.addEventListener('image-compare', (event) => actions.compare(filmOf(event)));
    button.addEventListener('click', () => this.toggle(this.element.hidden));
  }

  /** @param {boolean} shown */
  toggle(shown) {
    this.element.hidden = !shown;
    this.button.setAttribute('aria-expanded', String(shown));
    if (shown) this.follow();
    else this.book.removeAttribute('collection');
  }

  /** Show the collection that is searched, as it is now. @param {string} [list] the list that has changed */
  follow(list) {
    const collection = this.actions.collection();
    if (this.element.hidden || collection === null) return;
    if (this.book.getAttribute('collection') !== collection) this.book.setAttribute('collection', collection);
    else if (list !== undefined) this.book.refresh(list);
  }
}

/** @param {CustomEvent} event @returns {Film} */
function filmOf({ detail: { collection, id } }) {
  return { collection, id };
}

/** Which parts of the picture fit the query: an overlay, with its legend. */

import { fill, h } from '../../shared/dom.js';
import { iconButton } from '../../shared/icon-button.js';
import { say } from '../words.js';

export class MatchedControl {
  /** @type {((signal: AbortSignal) => Promise<Blob>) | null} */
  #ask = null;
  /** @type {AbortController | null} */
  #asking = null;
  #on = false;

  /** @param {HTMLElement} layer covers the picture */
  constructor(layer) {
    this.button = iconButton('matched', say('matched.toggle'), () => this.toggle(), { 'aria-pressed': 'false', hidden: true });
    this.picture = h('img', { class: 'matched-picture', alt: '', hidden: true });
    this.legend = h('div', { class: 'matched-legend', role: 'status' });
    layer.append(this.picture);
  }

  /** Reset for an image with nothing to compare it with. */
  forget() {
    this.#ask = null;
    this.button.hidden = true;
    this.#clear();
  }

  /** While it is on, it stays on for the next image. @param {(signal: AbortSignal) => Promise<Blob>} ask for the overlay of an image */
  offer(ask) {
    this.#ask = ask;
    this.button.hidden = false;
    this.#clear();
    if (this.#on) this.#show();
  }

  toggle() {
    if (this.#ask === null) return;
    this.#on = !this.#on;
    this.button.setAttribute('aria-pressed', String(this.#on));
    this.#clear();
    if (this.#on) this.#show();
  }

  #clear() {
    this.#asking?.abort();
    URL.revokeObjectURL(this.picture.src);
    this.picture.removeAttribute('src');
    this.picture.hidden = true;
    fill(this.legend);
  }

  async #show() {
    const asking = (this.#asking = new AbortController());
    fill(this.legend, h('span', {}, say('matched.looking')));
    try {
      const overlay = await this.#ask(asking.signal);
      if (asking.signal.aborted) return;
      this.picture.src = URL.createObjectURL(overlay);
      this.picture.hidden = false;
      fill(this.legend, h('span', {}, say('matched.less')), h('span', { class: 'matched-scale', 'aria-hidden': 'true' }), h('span', {}, say('matched.more')));
    } catch (error) {
      if (!asking.signal.aborted) fill(this.legend, h('span', {}, error instanceof Error ? error.message : String(error)));
    }
  }
}

/** The image that is open: one of the hits, an example, or one that an address names. */

import { sideOf } from '../query/query.js';
import { ImageDialog } from './image-dialog.js';

/**
 * @typedef {import('../api.js').Hit} Hit
 * @typedef {import('../query/query.js').SearchState} SearchState
 * @typedef {import('../query/query.js').Side} Side
 */

export class OpenedImage {
  /**
   * @param {() => {state: SearchState, hits: Hit[]}} now
   * @param {{api: () => import('../api.js').SearchApi, mark: (id: string, side: Side | null) => void,
   *   filter: (finding: string, state: import('../query/filter.js').State) => void, turn: (id: string | null, step: 'push' | 'replace' | 'close') => void,
   *   closed: (id: string) => void}} actions `turn` makes another image, or none, the one that is open
   * @param {import('../judgements/judgements.js').Judgements} judgements
   */
  constructor(now, actions, judgements) {
    this.now = now;
    this.actions = actions;
    this.dialog = new ImageDialog({
      mark: actions.mark,
      filter: actions.filter,
      step: (by) => this.#step(by),
      closed: (id) => {
        actions.turn(null, 'close');
        actions.closed(id);
      },
    }, judgements);
  }

  /** @param {string} id of a hit or an example */
  open(id) {
    this.actions.turn(id, 'push');
    this.show();
  }

  /** Bring the dialog in line with the state. */
  show() {
    const { state: { opened, collection, query }, hits } = this.now();
    if (opened === null) {
      this.dialog.dismiss();
      return;
    }
    const place = hits.findIndex(({ id }) => id === opened);
    const ends = { first: place <= 0, last: place < 0 || place === hits.length - 1 };
    this.dialog.open(this.actions.api(), collection, opened, hits[place] ?? null, { ...ends, side: sideOf(query, opened) });
  }

  /** @param {number} by */
  #step(by) {
    const { state: { opened }, hits } = this.now();
    this.actions.turn(hits[hits.findIndex(({ id }) => id === opened) + by].id, 'replace');
    this.show();
  }
}

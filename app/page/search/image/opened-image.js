/** The image that is open: one of the hits, an example, or one that an address names. */

import { bodyOf, isUnranked, sideOf, withPictureBox, withRegion } from '../query/query.js';
import { ImageDialog } from './image-dialog.js';

/**
 * @typedef {import('../api.js').Hit} Hit
 * @typedef {import('../query/query.js').SearchState} SearchState
 * @typedef {import('../query/query.js').Side} Side
 */

export class OpenedImage {
  /**
   * @param {() => {state: SearchState, hits: Hit[], regions: boolean}} now `regions`: whether the collection can be searched by parts of images
   * @param {{api: () => import('../api.js').SearchApi, search: (change: (query: import('../query/query.js').Query) => import('../query/query.js').Query) => void, mark: (id: string, side: Side | null) => void,
   *   filter: (finding: string, state: import('../query/filter.js').State) => void, save: (id: string) => void, turn: (id: string | null, step: 'push' | 'replace' | 'close') => void,
   *   closed: (id: string) => void}} actions `turn` makes another image, or none, the one that is open
   * @param {import('../judgements/judgements.js').Judgements} judgements
   */
  constructor(now, actions, judgements) {
    this.now = now;
    this.actions = actions;
    this.dialog = new ImageDialog({
      mark: actions.mark,
      region: (id, box) => actions.search((query) => (id === null ? withPictureBox(query, box) : withRegion(query, id, box))),
      filter: actions.filter,
      save: actions.save,
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

  /** Let a part of the picture that the reader brought be marked. @param {string} address of the picture */
  markPicture(address) {
    this.dialog.markPicture(this.now().state.query.picture, address, this.actions.api());
  }

  /** Bring the dialog in line with the state. */
  show() {
    const { state: { opened, collection, query }, hits, regions } = this.now();
    if (opened === null) {
      // Hits that come meanwhile do not close a picture that is being marked.
      if (this.dialog.id !== null) this.dialog.dismiss();
      return;
    }
    const index = hits.findIndex(({ id }) => id === opened);
    const ends = { first: index <= 0, last: index < 0 || index === hits.length - 1 };
    const api = this.actions.api();
    const images = query.picture ? [query.picture.file] : [];
    const matched = regions && !isUnranked(query) ? (signal) => api.overlay(collection, opened, bodyOf(query), images, signal) : null;
    this.dialog.open(api, collection, opened, hits[index] ?? null, { ...ends, side: sideOf(query, opened), box: query.boxes[opened] ?? null, regions, matched });
  }

  /** @param {number} by */
  #step(by) {
    const { state: { opened }, hits } = this.now();
    this.actions.turn(hits[hits.findIndex(({ id }) => id === opened) + by].id, 'replace');
    this.show();
  }
}

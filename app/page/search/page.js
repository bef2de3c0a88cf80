/** The page around `<image-search>`: keeps its state in the address, so that it can be shared and gone back to. */

import './image-search.js';
import { fromAddress, toAddress } from './query/address.js';
import { titleOf } from './query/query.js';

/** Uploaded images of this visit, by the number of their history entry. @type {Map<number, import('./query/query.js').Picture>} */
const images = new Map();
const search = document.querySelector('image-search');

/** @param {'push' | 'replace'} step @param {import('./query/query.js').SearchState} state @param {boolean} [openedHere] */
function remember(step, state, openedHere = false) {
  const key = step === 'push' ? Date.now() + Math.random() : (history.state?.key ?? Date.now());
  if (state.query.picture) images.set(key, state.query.picture);
  const entry = { key, openedHere };
  const address = `${location.pathname}?${toAddress(state)}`;
  if (step === 'push') history.pushState(entry, '', address);
  else history.replaceState(entry, '', address);
  name(state);
}

/** @param {import('./query/query.js').SearchState} state */
function name({ query }) {
  const what = titleOf(query);
  document.title = what ? `${what} \u00b7 recoquest` : 'recoquest';
}

function restore() {
  const { imageIsGone, broken, ...state } = fromAddress(location.search);
  const picture = imageIsGone ? images.get(history.state?.key) : undefined;
  if (picture) state.query = { ...state.query, picture };
  name(state);
  search.restore(state, { imageIsGone: imageIsGone && !picture, broken });
}

search.addEventListener('search-change', ({ detail: { state, step } }) => {
  if (step === 'close' && history.state?.openedHere) history.back();
  else if (step === 'push') remember('push', state, state.opened !== null);
  else remember('replace', state, state.opened !== null && Boolean(history.state?.openedHere));
});
window.addEventListener('popstate', restore);
restore();

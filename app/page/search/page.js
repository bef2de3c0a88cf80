/**
 * The page around `<image-search>`: keeps its state in the history of the tab, so that it can be gone back to and reloaded. Addresses
 * are kept by browsers and proxies: they name the collection alone. A link that is shared has the rest in its fragment, which no
 * browser sends to a server.
 */

import './image-search.js';
import { fill, h } from '../shared/dom.js';
import { icon } from '../shared/icons.js';
import { speakPage } from '../shared/words.js';
import { fromLink, isLink, toAddress, toLink } from './query/address.js';
import { say } from './words.js';

/** @typedef {import('./query/query.js').SearchState} SearchState */

/** The search that a visit to the organisation's sign-in interrupts. */
const INTERRUPTED = 'recoquest-interrupted-search';
const FAILED_SIGN_IN = '#sign-in=';
const TOAST_MS = 4000;

/** Uploaded images of this visit, by the number of their history entry. @type {Map<number, import('./query/query.js').Picture>} */
const images = new Map();
const search = document.querySelector('image-search');
const toast = h('p', { class: 'toast', role: 'status', hidden: true });

/** @param {'push' | 'replace'} step @param {SearchState} state @param {boolean} [openedHere] */
function remember(step, state, openedHere = false) {
  const key = step === 'push' ? Date.now() + Math.random() : (history.state?.key ?? Date.now());
  if (state.query.picture) images.set(key, state.query.picture);
  const entry = { key, openedHere, search: toLink(state) };
  const address = location.pathname + toAddress(state);
  if (step === 'push') history.pushState(entry, '', address);
  else history.replaceState(entry, '', address);
}

/** The search of this entry of the history; one that the address brings is moved there. @returns {string} */
function taken() {
  const failed = location.hash.startsWith(FAILED_SIGN_IN) ? location.hash : '';
  const interrupted = sessionStorage.getItem(INTERRUPTED);
  sessionStorage.removeItem(INTERRUPTED);
  const shared = [failed ? '' : location.hash.slice(1), location.search.slice(1)].find(isLink);
  const search = shared ?? history.state?.search ?? interrupted ?? location.search.slice(1);
  const entry = { key: history.state?.key ?? Date.now(), openedHere: Boolean(history.state?.openedHere), search };
  history.replaceState(entry, '', location.pathname + toAddress(fromLink(search)) + failed);
  return search;
}

function restore() {
  const { imageIsGone, broken, ...state } = fromLink(taken());
  const picture = imageIsGone ? images.get(history.state.key) : undefined;
  if (picture) state.query = { ...state.query, picture };
  search.restore(state, { imageIsGone: imageIsGone && !picture, broken });
}

async function copyLink() {
  const { state } = search;
  const link = `${location.origin}${location.pathname}#${toLink(state)}`;
  try {
    // Only pages that came over HTTPS, or from this machine, have a clipboard.
    await navigator.clipboard.writeText(link);
  } catch {
    window.prompt(say('link.prompt'), link);
    return;
  }
  fill(toast, state.query.picture ? say('link.copiedWithoutImage') : say('link.copied'));
  toast.hidden = false;
  setTimeout(() => { toast.hidden = true; }, TOAST_MS);
}

speakPage();
search.append(h('button', { slot: 'tools', class: 'tool-link copy-link', type: 'button', title: say('link.copyWhat'), 'aria-label': say('link.copy'), on: { click: copyLink } },
  icon('link'), h('span', {}, say('link.copy'))));
search.after(toast);
search.addEventListener('search-change', ({ detail: { state, step } }) => {
  if (step === 'close' && history.state?.openedHere) history.back();
  else if (step === 'push') remember('push', state, state.opened !== null);
  else remember('replace', state, state.opened !== null && Boolean(history.state?.openedHere));
});
search.addEventListener('sign-in-elsewhere', () => sessionStorage.setItem(INTERRUPTED, toLink(search.state)));
window.addEventListener('popstate', restore);
restore();

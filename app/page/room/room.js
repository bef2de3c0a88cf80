/**
 * The reading room: the search on one side, its films on a light table on the other. The films are in the fragment of the address, which no
 * browser sends to a server; the search, which may name a person, in the history of the tab alone.
 */

import { fill, h } from '../shared/dom.js';
import { problemFrom } from '../shared/http.js';
import { actionOf, isTyping, KEYS } from '../shared/keys.js';
import { problemNotice } from '../shared/problem-notice.js';
import { Session } from '../shared/session.js';
import { signInForm, takeSignInProblem } from '../shared/sign-in.js';
import { speakPage } from '../shared/words.js';
import { fragmentOf, tableOf } from './address.js';
import { Cases } from './cases.js';
import { FilmsApi } from './film/films-api.js';
import './light-table.js';
import { say } from './words.js';

/** The films that a visit to the organisation's sign-in interrupts. */
const INTERRUPTED = 'recoquest-interrupted-room';

speakPage();

const base = new URL('.', location.href);
const session = new Session(base);
const main = document.querySelector('main');
const search = document.createElement('image-search');
const table = document.createElement('light-table');
const cases = new Cases({ collection: () => search.state.collection, open: (film) => table.open(film), compare: (film) => table.compare(film) }, document.querySelector('#show-cases'));
const failed = takeSignInProblem();

search.setAttribute('theme', 'dark');
search.setAttribute('compare', '');
search.setAttribute('group-by', 'study');
const filmOf = ({ collection, id }) => ({ collection, id });
search.addEventListener('image-select', (event) => {
  event.preventDefault();
  table.open(filmOf(event.detail));
});
search.addEventListener('image-compare', ({ detail }) => table.compare(filmOf(detail)));
search.addEventListener('search-change', ({ detail: { state, step } }) => {
  remember(state, step === 'push');
  cases.follow();
});
search.addEventListener('case-save', ({ detail: { list } }) => cases.follow(list));
search.addEventListener('sign-out', () => {
  cases.toggle(false);
  table.restore({ layout: 2, active: 0, films: [] });
  remember(search.state);
});
table.addEventListener('films-change', () => remember(search.state));
table.addEventListener('search-like', ({ detail: { collection, id, box } }) => {
  const { query, ...rest } = search.state;
  const like = { ...query, text: '', picture: null, like: [id], unlike: [], boxes: box === null ? {} : { [id]: box } };
  const state = { ...rest, collection, opened: null, query: like };
  search.restore(state);
  remember(state, true);
});
document.addEventListener('sign-in-elsewhere', () => sessionStorage.setItem(INTERRUPTED, location.hash));
document.addEventListener('keydown', onKey);
document.addEventListener('keyup', ({ key }) => key === ' ' && table.holdSpace(false));
window.addEventListener('blur', () => table.holdSpace(false));
window.addEventListener('popstate', restore);

/** Keep what is searched for and shown. @param {any} state @param {boolean} [isNew] whether one can go back to what was there before */
function remember({ query: { picture, ...query }, ...state }, isNew = false) {
  // A picture that the reader brought is gone with a reload.
  const entry = { search: { ...state, query: { ...query, picture: null } } };
  const address = location.pathname + fragmentOf(table.table);
  if (isNew) history.pushState(entry, '', address);
  else history.replaceState(entry, '', address);
}

function restore() {
  const shown = tableOf(location.hash);
  const { state } = search;
  search.restore(history.state?.search ?? { ...state, collection: shown.films.find(Boolean)?.collection ?? state.collection });
  table.restore(shown);
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  if (event.defaultPrevented || !main.contains(table) || (isTyping(event) && event.key !== 'F6')) return;
  if (takesKey(event)) event.preventDefault();
}

/** @param {KeyboardEvent} event @returns {boolean} */
function takesKey(event) {
  const [origin] = event.composedPath();
  const isElsewhere = event.target.closest?.('image-search, #cases') ?? null;
  const action = actionOf(event);
  if (action === 'switch') switchPart();
  else if (action === 'search') search.field.focus();
  else if (event.key === ' ' && isElsewhere === null && !(origin instanceof Element && origin.closest('button, a'))) table.holdSpace(true);
  else if (isElsewhere === null) return table.takesKey(event);
  // No other part of the page has these keys: after Enter on a hit they are for the film that it shows.
  else return action !== 'remove' && [KEYS.picture, KEYS.film].some((actions) => action in actions) && table.takesAction(action, event.key);
  return true;
}

/** From the films to the hits, and back. */
function switchPart() {
  if (table.contains(document.activeElement)) search.results.grid.focus();
  else table.focus();
}

/** @param {string} why */
function signIn(why) {
  fill(main, signInForm(session, why, start, failed));
}

async function start() {
  try {
    await session.ready();
  } catch (error) {
    fill(main, problemNotice(problemFrom(error), start));
    return;
  }
  if (session.needsKey) {
    signIn(say('signIn'));
    return;
  }
  fill(main, h('section', { class: 'room-search', 'aria-label': say('search') }, search),
    h('section', { class: 'room-table', 'aria-label': say('table') }, table, cases.element));
  cases.button.hidden = false;
  // Signing in or out there also does so here.
  table.api = new FilmsApi(base, search.api.session);
  const interrupted = sessionStorage.getItem(INTERRUPTED);
  sessionStorage.removeItem(INTERRUPTED);
  if (interrupted) history.replaceState(history.state, '', location.pathname + interrupted);
  restore();
}

start();

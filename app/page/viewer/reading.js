/**
 * The page around the viewer: a panel follows the active image and lists similar cases. The study to open stands in the fragment of the
 * address, which no browser sends to a server: `#study=UID&series=UID&image=UID`.
 */

import { fill, h } from '../shared/dom.js';
import { problemFrom } from '../shared/http.js';
import { Session } from '../shared/session.js';
import { signInForm, takeSignInProblem } from '../shared/sign-in.js';
import { speakPage } from '../shared/words.js';
import { CaseList } from './case-list.js';
import { CasesApi } from './cases-api.js';
import { SaveButton } from './save-button.js';
import { ViewerFrame } from './viewer-frame.js';
import { parts, say } from './words.js';

/**
 * @typedef {import('./cases-api.js').ActiveImage} ActiveImage
 * @typedef {import('./cases-api.js').Case} Case
 * @typedef {import('./cases-api.js').Cases} Cases
 */

/** Images are passed quickly by scrolling: only one that stays is searched for. */
const REST_MS = 200;
const LOOK_MS = 1000;

speakPage();
const base = new URL('.', location.href);
const session = new Session(base);
const api = new CasesApi(base, session);
/** @type {ActiveImage | null} */
let active = null;
/** @type {Cases | null} */
let cases = null;
/** @type {string | null} */
let chosen = null;
let waiting = 0;
/** What is told of studies whose indexing goes on, by UID. @type {Map<string, string>} */
const indexing = new Map();
let asking = new AbortController();

const frame = new ViewerFrame(base, (image) => {
  if (JSON.stringify(image) === JSON.stringify(active)) return;
  active = image;
  clearTimeout(waiting);
  waiting = setTimeout(search, REST_MS);
});
const list = new CaseList({
  beside: (hit) => frame.open([active.study, hit.study], { series: active.series, sop: active.sop }),
  address: (hit) => api.resolve(hit.links.viewer ?? `reading#${new URLSearchParams({ study: hit.study ?? '' })}`),
  picture: (hit) => api.resolve(hit.links.thumbnail),
  judge: (hit, relevant) => kept(() => api.judge(cases.collection, hit.query_image, hit.id, relevant)),
});
const said = h('p', { class: 'cases-said', role: 'status' });
const picker = h('select', { class: 'select', 'aria-label': say('cases.collection'), hidden: true, on: { change: () => { chosen = picker.value; search(); } } });
const saver = new SaveButton({
  chosen: () => list.chosen(),
  say: (text) => fill(said, text),
  send: async (path, body, key) => {
    try {
      return await api.writeBack(path, body, key);
    } catch (error) {
      showProblem(error);
      return null;
    }
  },
});
const priors = h('input', { type: 'checkbox', on: { change: () => search() } });
const missing = h('input', { class: 'number', id: 'missing', autocomplete: 'off', required: true });
const missingForm = h('form', { class: 'missing', hidden: true, on: { submit: supplement } },
  h('label', { for: 'missing' }, say('missing.label')), missing, h('button', { class: 'button' }, say('missing.add')));
const panel = h('aside', { class: 'cases', 'aria-label': say('cases.title') }, h('h1', {}, say('cases.title')),
  h('div', { class: 'cases-head' }, h('label', {}, priors, say('cases.samePatientToo')), picker, saver.element), said, list.element, missingForm);

/** Find cases like the active image. */
async function search() {
  if (active === null) return;
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  fill(said, say('cases.searching'));
  try {
    const found = await api.similar(active, chosen, priors.checked, signal);
    if (signal.aborted) return;
    cases = found;
    show(found);
  } catch (error) {
    if (!signal.aborted) showProblem(error);
  }
}

/** @param {Cases} found */
function show(found) {
  list.show(found.hits, haveDatesOf(active, found));
  saver.offer(active, found.write_back);
  missingForm.hidden = found.state === 'not_indexed';
  fill(picker, ...found.collections.map((name) => h('option', { value: name, selected: name === found.collection }, name)));
  picker.hidden = found.collections.length < 2;
  if (found.state === 'not_indexed') showMissing(found);
  else fill(said, found.hits.length === 0 ? say('cases.none', { collection: found.collection }) : '');
}

/** Dates that an import has shifted would contradict those in the viewer. @param {ActiveImage} image @param {Cases} found */
function haveDatesOf({ date }, { images }) {
  return images.every((image) => image.date === null || image.date.replaceAll('-', '') === date);
}

/** @param {Cases} found */
function showMissing({ index_now: request }) {
  const { study } = active;
  const news = indexing.get(study);
  const button = request && h('button', { class: 'button', type: 'button', on: { click: () => index(request, study) } }, say('cases.indexNow'));
  fill(said, news ?? say('cases.notIndexed'), news === undefined && button);
}

/** Have the archive's study indexed, and show its similar cases then. @param {import('./cases-api.js').IndexNow} request @param {string} study */
async function index(request, study) {
  const isOpen = () => active.study === study;
  const tell = (news) => {
    indexing.set(study, news);
    if (isOpen() && cases.state === 'not_indexed') showMissing(cases);
  };
  tell(say('cases.indexWaits'));
  try {
    let job = await api.begin(request);
    while (job.state === 'queued' || job.state === 'running') {
      tell(say(job.state === 'queued' ? 'cases.indexWaits' : 'cases.indexing'));
      await new Promise((resolve) => { setTimeout(resolve, LOOK_MS); });
      job = await api.job(job.id);
    }
    indexing.delete(study);
    if (!isOpen()) return;
    if (job.state === 'done') await search();
    const why = job.error ?? say(job.state === 'done' ? 'cases.noneTaken' : 'cases.indexCancelled');
    if (cases.state === 'not_indexed') fill(said, h('span', { role: 'alert' }, ...parts('cases.indexFailed', { job: `${job.id}`, why: h('span', { lang: job.error && 'en' }, why) })));
  } catch (error) {
    indexing.delete(study);
    if (isOpen()) showProblem(error);
  }
}

/** @param {unknown} error */
function showProblem(error) {
  const problem = problemFrom(error);
  if (problem.status === 401) {
    session.end();
    signIn(null);
    return;
  }
  fill(said, h('span', { role: 'alert' }, ...parts('cases.problem', { title: problem.title, detail: h('span', { lang: problem.lang }, problem.detail) })));
}

/** Whether the service has kept what was said. @param {() => Promise<unknown>} send @returns {Promise<boolean>} */
async function kept(send) {
  try {
    await send();
    return true;
  } catch (error) {
    showProblem(error);
    return false;
  }
}

/** @param {SubmitEvent} event */
async function supplement(event) {
  event.preventDefault();
  const id = missing.value.trim();
  const image = cases.hits[0]?.query_image ?? active.sop;
  if (!await kept(() => api.judge(cases.collection, image, id, true, true))) return;
  missing.value = '';
  fill(said, say('missing.kept', { id }));
}

/** @param {string | null} why null: the session has ended */
function signIn(why) {
  document.body.replaceChildren(h('main', {}, signInForm(session, why, start, takeSignInProblem())));
}

async function start() {
  try {
    await session.known();
  } catch (error) {
    document.body.replaceChildren(panel);
    showProblem(error);
    return;
  }
  if (session.name === null) {
    signIn(say('cases.keyNeeded'));
    return;
  }
  document.body.replaceChildren(frame.identity, frame.element, panel);
  open();
}

/** Open the study of the address. */
function open() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const study = wanted.get('study');
  if (study === null) {
    fill(said, say('cases.noStudy'));
    return;
  }
  frame.open([study], { series: wanted.get('series'), sop: wanted.get('image') });
}

window.addEventListener('hashchange', open);
start();

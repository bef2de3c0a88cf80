/**
 * The page around the viewer: a panel follows the active image and lists similar cases. The study to open is in the fragment of the
 * address, which no browser sends to a server: `#study=UID&series=UID&image=UID`.
 */

import { fill, h } from '../shared/dom.js';
import { problemFrom } from '../shared/http.js';
import { Session } from '../shared/session.js';
import { signInForm, takeSignInProblem } from '../shared/sign-in.js';
import { say as sharedText, speakPage } from '../shared/words.js';
import { CaseList } from './case-list.js';
import { CasesApi } from './cases-api.js';
import { SaveButton } from './save-button.js';
import { ViewerFrame } from './viewer-frame.js';
import { parts, say } from './words.js';

/**
 * @typedef {import('./cases-api.js').ActiveImage} ActiveImage
 * @typedef {import('./cases-api.js').Case} Case
 * @typedef {import('./cases-api.js').Cases} Cases
 * @typedef {import('./cases-api.js').Answer} Answer
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
/** Whose cases the panel shows: all that is written belongs to them. @type {Answer | null} */
let shown = null;
/** @type {string | null} */
let chosen = null;
let waiting = 0;
/** Progress of studies that are being indexed, by UID. @type {Map<string, string>} */
const indexing = new Map();
let asking = new AbortController();

const frame = new ViewerFrame(base, (image) => {
  if (image !== null && JSON.stringify(image) === JSON.stringify(active)) return;
  active = image;
  leave();
  picker.hidden = true;
  missing.value = '';
  fill(status, say(image === null ? 'cases.noImage' : 'cases.searching'));
  if (image !== null) waiting = setTimeout(search, REST_MS);
});
const list = new CaseList({
  sideBySide: ({ image }, hit) => frame.open([image.study, hit.study], { series: image.series, sop: image.sop }),
  address: (hit) => api.resolve(hit.links.viewer ?? `reading#${new URLSearchParams({ study: hit.study ?? '' })}`),
  picture: (hit) => api.resolve(hit.links.thumbnail),
  judge: async (answer, hit, relevant) => await sent(answer, () => api.judge(answer.cases.collection, hit.query_image, hit.id, relevant)) !== null,
});
const status = h('p', { class: 'cases-status', role: 'status' });
const picker = h('select', { class: 'select', 'aria-label': say('cases.collection'), hidden: true, on: { change: () => { chosen = picker.value; search(); } } });
const saver = new SaveButton({
  chosen: (answer) => list.chosen(answer),
  say: (answer, text) => { if (shown === answer) fill(status, text); },
  send: (answer, body, key) => sent(answer, () => api.writeBack(answer.cases.write_back.path, body, key)),
});
const priors = h('input', { type: 'checkbox', on: { change: () => search() } });
const missing = h('input', { class: 'number', id: 'missing', autocomplete: 'off', required: true });
const missingForm = h('form', { class: 'missing', hidden: true, on: { submit: supplement } },
  h('label', { for: 'missing' }, say('missing.label')), missing, h('button', { class: 'button' }, say('missing.add')));
const panel = h('aside', { class: 'cases', 'aria-label': say('cases.title') }, h('h1', {}, say('cases.title')),
  h('p', { class: 'no-device', role: 'note' }, sharedText('nav.noDevice')),
  h('div', { class: 'cases-head' }, h('label', {}, priors, say('cases.samePatientToo')), picker, saver.element), status, list.element, missingForm);

/** Show and offer nothing of the former answer, and drop one that is on its way. */
function leave() {
  clearTimeout(waiting);
  asking.abort();
  shown = null;
  list.clear();
  saver.withdraw();
  missingForm.hidden = true;
}

/** Find cases like the active image. */
async function search() {
  if (active === null) return;
  leave();
  const image = active;
  asking = new AbortController();
  const { signal } = asking;
  fill(status, say('cases.searching'));
  try {
    const cases = await api.similar(image, chosen, priors.checked, signal);
    if (signal.aborted) return;
    if (isElsewhere(cases)) {
      chosen = null;
      await search();
    } else show({ image, cases });
  } catch (error) {
    if (!signal.aborted) showProblem(error);
  }
}

/** Whether the collection that was chosen for a former film lacks this one, and others have it. @param {Cases} found */
function isElsewhere({ state, collections }) {
  return chosen !== null && state === 'not_indexed' && collections.length > 0 && !collections.includes(chosen);
}

/** @param {Answer} answer */
function show(answer) {
  const { image, cases: found } = answer;
  shown = answer;
  list.show(answer, haveDatesOf(image, found));
  saver.offer(answer);
  missingForm.hidden = found.state === 'not_indexed';
  fill(picker, ...found.collections.map((name) => h('option', { value: name, selected: name === found.collection }, name)));
  picker.hidden = found.collections.length < 2;
  if (found.state === 'not_indexed') showMissing(answer);
  else fill(status, found.hits.length === 0 ? say('cases.none', { collection: found.collection }) : '');
}

/** Dates that an import has shifted would contradict those in the viewer. @param {ActiveImage} image @param {Cases} found */
function haveDatesOf({ date }, { images }) {
  return images.every((image) => image.date === null || image.date.replaceAll('-', '') === date);
}

/** @param {Answer} answer */
function showMissing({ image: { study }, cases: { index_now: request } }) {
  const news = indexing.get(study);
  const button = request && h('button', { class: 'button', type: 'button', on: { click: () => index(request, study) } }, say('cases.indexNow'));
  fill(status, news ?? say('cases.notIndexed'), news === undefined && button);
}

/** Have the archive's study indexed, and show its similar cases then. @param {import('./cases-api.js').IndexNow} request @param {string} study */
async function index(request, study) {
  const isMissing = () => shown !== null && shown.image.study === study && shown.cases.state === 'not_indexed';
  const tell = (news) => {
    indexing.set(study, news);
    if (isMissing()) showMissing(shown);
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
    if (active?.study !== study) return;
    if (job.state === 'done') await search();
    const why = job.error ?? say(job.state === 'done' ? 'cases.noneTaken' : 'cases.indexCancelled');
    if (isMissing()) fill(status, h('span', { role: 'alert' }, ...parts('cases.indexFailed', { job: `${job.id}`, why: h('span', { lang: job.error && 'en' }, why) })));
  } catch (error) {
    indexing.delete(study);
    if (isMissing()) showProblem(error);
  }
}

/** @param {unknown} error */
function showProblem(error) {
  const problem = problemFrom(error);
  if (problem.status === 401) {
    session.end();
    frame.close();
    signIn(null);
    return;
  }
  fill(status, h('span', { role: 'alert' }, ...parts('cases.problem', { title: problem.title, detail: h('span', { lang: problem.lang }, problem.detail) })));
}

/**
 * Send what belongs to the cases of an answer; null: the service did not take it, and the panel says why while it shows them.
 *
 * @template T @param {Answer} answer @param {() => Promise<T>} send @returns {Promise<T | null>}
 */
async function sent(answer, send) {
  try {
    return await send();
  } catch (error) {
    if (shown === answer) showProblem(error);
    return null;
  }
}

/** @param {SubmitEvent} event */
async function supplement(event) {
  event.preventDefault();
  const answer = shown;
  if (answer === null) return;
  const id = missing.value.trim();
  const { collection, hits, images } = answer.cases;
  // A frame of a film has an id of its own in the collection.
  const image = hits[0]?.query_image ?? images[0].id;
  if (await sent(answer, () => api.judge(collection, image, id, true, true)) === null || shown !== answer) return;
  missing.value = '';
  fill(status, say('missing.kept', { id }));
}

/** @param {string | null} why null: the session has ended */
function signIn(why) {
  document.body.replaceChildren(h('main', {}, signInForm(session, why, start, takeSignInProblem())));
}

async function start() {
  try {
    await session.ready();
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
  const parameters = new URLSearchParams(location.hash.slice(1));
  const study = parameters.get('study');
  if (study === null) {
    frame.close();
    fill(status, say('cases.noStudy'));
    return;
  }
  frame.open([study], { series: parameters.get('series'), sop: parameters.get('image') });
}

window.addEventListener('hashchange', open);
start();

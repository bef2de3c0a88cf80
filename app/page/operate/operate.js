/** The operator's page: jobs as they go on, generations, models, and the steps that change what is searched. */

import { fill, h } from '../shared/dom.js';
import { problemFrom } from '../shared/http.js';
import { icon } from '../shared/icons.js';
import { problemNotice } from '../shared/problem-notice.js';
import { Session } from '../shared/session.js';
import { SignedIn, signInForm, takeSignInProblem } from '../shared/sign-in.js';
import { speakPage } from '../shared/words.js';
import { CollectionList } from './collection-list.js';
import { ConfirmDialog } from '../shared/confirm-dialog.js';
import { JobList } from './job-list.js';
import { ModelList } from './model-list.js';
import { OperatorApi } from './operator-api.js';
import { OperatorSteps } from './operator-steps.js';
import { parts, say } from './words.js';

const JOBS_MS = 3000;
const MODELS_MS = 30000;

class OperatorPage {
  #mayChange = false;
  /** Whether there is any use in asking for jobs again. */
  #asks = true;
  /** @type {import('./operator-api.js').Collection[] | null} */
  #collections = null;
  /** What is shown, so that nothing is drawn again that has not changed. @type {Map<object, string>} */
  #shown = new Map();

  constructor() {
    const base = new URL('../..', import.meta.url);
    this.session = new Session(base);
    this.api = new OperatorApi(base, this.session);
    const steps = new OperatorSteps(this.api);
    const ask = (step) => (...about) => this.dialog.ask(steps[step](...about));
    this.jobs = new JobList({
      follow: (job, signal) => this.api.follow(job, signal),
      ended: () => this.#lookAtModels(),
      waits: (job) => this.#waits(job),
      cancel: ask('cancel'),
      promote: ask('promote'),
    });
    this.collections = new CollectionList({
      mayChange: () => this.#mayChange,
      activate: ask('activate'),
      rollBack: ask('rollBack'),
      embed: ask('embed'),
      retrain: ask('retrain'),
    });
    this.models = new ModelList({ card: (digest) => this.api.card(digest) });
    this.dialog = new ConfirmDialog({ done: (sentence) => this.#tell(sentence), refused: () => this.#look() });
    this.announcement = h('p', { class: 'strip announcement', role: 'status', tabindex: '-1' });
    this.noWorker = h('p', { class: 'strip', hidden: true }, icon('warning'),
      h('span', {}, ...parts('page.noWorker', { command: h('code', {}, 'recoquest worker') })));
    this.jobsPlace = h('div', {}, this.jobs.element);
    this.modelsPlace = h('div', {}, section('collections', say('page.collections'), this.collections.element), section('models', say('page.models'), this.models.element));
    this.person = new SignedIn(() => this.session, { out: () => this.#look(), refused: (error) => this.#refuse(problemFrom(error)) });
    this.element = h('div', { class: 'operate' },
      h('header', { class: 'operate-head' }, h('h1', {}, say('page.title')), this.person.element),
      this.announcement, section('jobs', say('page.jobs'), h('div', {}, this.noWorker, this.jobsPlace)), this.modelsPlace, this.dialog.element);
  }

  async start() {
    await this.#look();
    setInterval(() => !document.hidden && this.#asks && this.#lookAtJobs(), JOBS_MS);
    setInterval(() => !document.hidden && this.#lookAtModels(), MODELS_MS);
    document.addEventListener('visibilitychange', () => !document.hidden && this.#lookAtModels());
  }

  async #look() {
    await Promise.all([this.#lookAtJobs(), this.#lookAtModels()]);
  }

  async #lookAtJobs() {
    try {
      await this.session.ready();
      this.person.show();
      if (this.session.needsKey) {
        this.#askForKey();
        return;
      }
      const { jobs, workers } = await this.api.jobs();
      this.#asks = true;
      this.#allow(true);
      this.#shown.delete(this.jobsPlace);
      if (!this.jobs.element.isConnected) fill(this.jobsPlace, this.jobs.element);
      this.jobs.show(jobs);
      this.noWorker.hidden = workers > 0;
      if (this.modelsProblem?.isConnected) this.#lookAtModels();
    } catch (error) {
      this.#refuse(problemFrom(error));
    }
  }

  async #lookAtModels() {
    try {
      await this.session.ready();
      this.modelsPlace.hidden = this.session.needsKey;
      if (this.session.needsKey) return;
      const [collections, models] = await Promise.all([this.api.collections(), this.api.models()]);
      this.#collections = collections;
      this.#show(this.collections, collections);
      this.#show(this.models, models);
      this.jobs.showWaiting();
      this.modelsProblem?.remove();
    } catch (error) {
      this.modelsProblem?.remove();
      this.modelsProblem = problemNotice(problemFrom(error), () => this.#lookAtModels());
      this.modelsPlace.prepend(this.modelsProblem);
    }
  }

  /** @param {CollectionList | ModelList} view @param {object[]} content */
  #show(view, content) {
    const text = JSON.stringify([this.#mayChange, content]);
    if (this.#shown.get(view) === text) return;
    this.#shown.set(view, text);
    view.show(content);
  }

  /** @param {boolean} mayChange */
  #allow(mayChange) {
    if (this.#mayChange === mayChange) return;
    this.#mayChange = mayChange;
    if (this.#collections !== null) this.#show(this.collections, this.#collections);
  }

  /** @param {import('../shared/http.js').ProblemError} problem */
  #refuse(problem) {
    if (problem.status === 401) {
      this.session.end();
      this.person.show();
      this.#askForKey();
      return;
    }
    this.noWorker.hidden = true;
    if (problem.status === 403) this.#close();
    if (this.#shown.get(this.jobsPlace) === problem.detail) return;
    this.#shown.set(this.jobsPlace, problem.detail);
    fill(this.jobsPlace, problemNotice(problem, () => this.#lookAtJobs()));
  }

  #askForKey() {
    this.noWorker.hidden = true;
    this.#close();
    // Asked again every few seconds, it must leave alone what is being typed.
    if (this.jobsPlace.querySelector('.sign-in')) return;
    this.#shown.delete(this.jobsPlace);
    fill(this.jobsPlace, signInForm(this.session, say('page.keyNeeded'), () => this.#look(), takeSignInProblem()));
  }

  /** Disable changes, and stop polling jobs until somebody signs in. */
  #close() {
    this.#asks = false;
    this.jobs.stop();
    this.#allow(false);
  }

  /** Whether a retraining made a model that is ready and not searched with. @param {import('./operator-api.js').Job} job */
  #waits({ kind, result }) {
    if (kind !== 'retrain' || !result?.generation) return false;
    const generations = this.#collections?.find(({ name }) => name === result.collection)?.generations;
    return (generations ?? []).some(({ number, state }) => number === result.generation && state !== 'active');
  }

  /** @param {string} sentence */
  async #tell(sentence) {
    fill(this.announcement, icon('done'), h('span', {}, sentence));
    this.announcement.focus();
    await this.#look();
  }
}

/** @param {string} id @param {string} title @param {HTMLElement} content */
function section(id, title, content) {
  return h('section', { class: 'operate-section', 'aria-labelledby': id }, h('h2', { id }, title), content);
}

speakPage();
const page = new OperatorPage();
document.querySelector('main').append(page.element);
page.start();

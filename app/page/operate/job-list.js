/** The latest jobs, each followed while it runs. */

import { fill, h } from '../shared/dom.js';
import { LANGUAGE_OF_DETAILS } from '../shared/http.js';
import { timeText } from '../shared/words.js';
import { kindText, outcomeText, progressText } from './operator-words.js';
import { parts, say } from './words.js';

/** @typedef {import('./operator-api.js').Job} Job */

// A browser opens six connections to a server; the rest of the page needs some.
const MOST_FOLLOWED = 3;

export class JobList {
  /** @type {Map<number, JobRow>} */
  #rows = new Map();
  /** @type {Map<number, AbortController>} */
  #followed = new Map();

  /**
   * @param {{follow: (job: number, signal: AbortSignal) => AsyncGenerator<Job>, ended: () => void, cancel: (job: Job) => void,
   *   promote: (job: Job) => void, waits: (job: Job) => boolean}} actions
   */
  constructor(actions) {
    this.actions = actions;
    this.element = h('ul', { class: 'rows', role: 'list', data: { loading: say('page.loading') } });
  }

  /** @param {Job[]} jobs */
  show(jobs) {
    this.#rows = new Map(jobs.map((job) => [job.id, this.#rows.get(job.id) ?? new JobRow(this.actions)]));
    const ended = jobs.map((job) => this.#rows.get(job.id).update(job)).includes(true);
    const rows = [...this.#rows.values()].map((row) => row.element);
    if (rows.length === 0) fill(this.element, h('li', { class: 'empty' }, ...parts('jobs.none', { command: h('code', {}, 'recoquest jobs start') })));
    else if (rows.some((row, index) => this.element.children[index] !== row) || this.element.children.length > rows.length) fill(this.element, ...rows);
    const running = jobs.filter(({ state }) => state === 'running').slice(0, MOST_FOLLOWED);
    for (const { id } of running) this.#follow(id);
    if (ended) this.actions.ended();
  }

  /** Show again which retrainings wait: that depends on the generations. */
  showWaiting() {
    for (const row of this.#rows.values()) row.showStanding();
  }

  stop() {
    for (const stop of this.#followed.values()) stop.abort();
    this.#followed.clear();
  }

  /** @param {number} id */
  async #follow(id) {
    if (this.#followed.has(id)) return;
    const stop = new AbortController();
    this.#followed.set(id, stop);
    try {
      for await (const job of this.actions.follow(id, stop.signal)) {
        if (this.#rows.get(id)?.update(job)) this.actions.ended();
      }
    } catch {
      // The next look at the list of jobs tells what is wrong, or follows it again.
    } finally {
      this.#followed.delete(id);
    }
  }
}

class JobRow {
  /** @type {Job | null} */
  #job = null;
  #buttons = '';

  /** @param {JobList['actions']} actions */
  constructor(actions) {
    this.actions = actions;
    this.state = h('span', { class: 'tag' });
    this.bar = h('progress', { hidden: true });
    this.how = h('p', { class: 'small how' });
    this.outcome = h('p', { class: 'outcome' });
    this.when = h('p', { class: 'quiet small' });
    this.buttons = h('div', { class: 'row-end' });
    this.name = h('strong', {});
    this.command = h('code', { class: 'command' });
    this.element = h('li', { class: 'row' },
      h('div', { class: 'row-main' }, h('p', { class: 'row-head' }, this.name, this.state), this.command, this.bar, this.how, this.outcome, this.when), this.buttons);
  }

  /** @param {Job} job @returns {boolean} whether it has ended since it was shown last */
  update(job) {
    const ended = this.#job !== null && isOpen(this.#job) && !isOpen(job);
    this.#job = job;
    this.element.dataset.job = String(job.id);
    this.name.textContent = say('job.name', { job: job.id, kind: kindText(job) });
    this.command.textContent = job.arguments.join(' ');
    this.command.hidden = job.arguments.length === 0;
    this.#showProgress(job);
    this.outcome.textContent = job.error ?? outcomeText(job);
    // Errors are the service's own words, as details of problems.
    this.outcome.lang = job.error === null ? '' : LANGUAGE_OF_DETAILS;
    this.outcome.classList.toggle('bad', job.error !== null);
    this.outcome.hidden = this.outcome.textContent === '';
    fill(this.when, ...whenText(job));
    this.showStanding();
    return ended;
  }

  showStanding() {
    const job = this.#job;
    const cancels = isOpen(job) && !job.cancelling;
    const promotes = this.actions.waits(job);
    this.state.textContent = say(promotes ? 'state.waiting' : job.cancelling && isOpen(job) ? 'state.cancelling' : `state.${job.state}`);
    this.state.dataset.state = promotes ? 'waiting' : job.state;
    const buttons = `${cancels} ${promotes}`;
    // Buttons that stay keep the focus.
    if (buttons === this.#buttons) return;
    this.#buttons = buttons;
    fill(this.buttons,
      promotes && h('button', { class: 'button primary', type: 'button', 'aria-label': say('job.promoteOne', { job: job.id }), on: { click: () => this.actions.promote(this.#job) } }, say('job.promote')),
      cancels && h('button', { class: 'button', type: 'button', 'aria-label': say('job.cancelOne', { job: job.id }), on: { click: () => this.actions.cancel(this.#job) } }, say('job.cancel')));
  }

  /** @param {Job} job */
  #showProgress({ state, progress }) {
    const shown = state === 'running' && progress !== null;
    this.bar.hidden = state !== 'running';
    this.how.hidden = !shown;
    this.how.textContent = shown ? progressText(progress) : '';
    this.bar.setAttribute('aria-label', shown ? progress.what : say('job.beginning'));
    if (shown && progress.total) {
      this.bar.max = progress.total;
      this.bar.value = progress.done;
    } else this.bar.removeAttribute('value');
  }
}

/** @param {Job} job */
function isOpen({ state }) {
  return state === 'queued' || state === 'running';
}

/** @param {Job} job */
function whenText({ created, started, ended, worker, attempts }) {
  const stamp = (key, time) => parts(key, { time: h('time', { dateTime: time }, timeText(time)) });
  const last = ended ? stamp('job.ended', ended) : started ? stamp('job.begun', started) : stamp('job.given', created);
  return [...last, worker && started && say('job.worker', { worker }), attempts > 1 && say('job.attempt', { attempts })];
}

/** What an operator can have done, each with the words that ask before. */

import { kindText } from './operator-words.js';
import { say } from './words.js';

/**
 * @typedef {import('../shared/confirm-dialog.js').Step} Step
 * @typedef {import('./operator-api.js').Activated} Activated
 * @typedef {import('./operator-api.js').Collection} Collection
 * @typedef {import('./operator-api.js').Generation} Generation
 * @typedef {import('./operator-api.js').Job} Job
 * @typedef {import('./operator-api.js').OperatorApi} OperatorApi
 */

export class OperatorSteps {
  /** @param {OperatorApi} api */
  constructor(api) {
    this.api = api;
  }

  /** @param {Job} job a retraining that waits @returns {Step} */
  promote({ id, result }) {
    return {
      title: say('promote.title', { job: id }),
      text: say('promote.text', { collection: result.collection, number: result.generation }),
      act: say('job.promote'), busy: say('step.loading'),
      run: async () => searchedNow(await this.api.activate(result.collection, result.generation)),
    };
  }

  /** @param {Collection} collection @param {Generation} generation @returns {Step} */
  activate({ name }, { number, model }) {
    return {
      title: say('activate.title', { name, number }),
      text: say('activate.text', { model }),
      act: say('generation.activate'), busy: say('step.loading'),
      run: async () => searchedNow(await this.api.activate(name, number)),
    };
  }

  /** @param {Collection} collection @param {Generation} before @returns {Step} */
  rollBack({ name }, { number, model }) {
    return {
      title: say('rollBack.title', { name }),
      text: say('rollBack.text', { number, model }),
      act: say('collections.rollBack'), busy: say('step.loading'),
      run: async () => searchedNow(await this.api.rollBack(name)),
    };
  }

  /** @param {Collection} collection @param {Generation} generation @returns {Step} */
  embed({ name }, { number, missing }) {
    return {
      title: say('embed.title', { number }),
      text: say('embed.text', { missing, name }),
      act: say('embed.act'), busy: say('step.giving'),
      run: async () => submitted(await this.api.give({ kind: 'reindex', collection: name, generation: number })),
    };
  }

  /** @param {Collection} collection @returns {Step} */
  retrain({ name }) {
    return {
      title: say('retrain.title', { name }),
      text: say('retrain.text'),
      act: say('collections.retrain'), busy: say('step.giving'),
      run: async () => submitted(await this.api.give({ kind: 'retrain', collection: name })),
    };
  }

  /** @param {Job} job @returns {Step} */
  cancel(job) {
    const { id } = job;
    return {
      title: say('cancel.title', { job: id }),
      text: say('cancel.text', { kind: kindText(job) }),
      act: say('cancel.act'), busy: say('cancel.busy'),
      run: async () => {
        const { state } = await this.api.cancel(id);
        return say(state === 'cancelled' ? 'cancel.done' : 'cancel.begun', { job: id });
      },
    };
  }
}

/** @param {Activated} activated */
function searchedNow({ collection, number, model }) {
  return say('step.searchedNow', { collection, number, model });
}

/** @param {Job} job */
function submitted(job) {
  return say('step.given', { job: job.id, kind: kindText(job) });
}

/** What an operator can have done, each with the words that ask before. */

/**
 * @typedef {import('./confirm-dialog.js').Step} Step
 * @typedef {import('./operator-api.js').Activated} Activated
 * @typedef {import('./operator-api.js').Collection} Collection
 * @typedef {import('./operator-api.js').Generation} Generation
 * @typedef {import('./operator-api.js').Job} Job
 * @typedef {import('./operator-api.js').OperatorApi} OperatorApi
 */

const SWAP = 'Every service loads the model first, then all searches change at one moment.';

export class OperatorSteps {
  /** @param {OperatorApi} api */
  constructor(api) {
    this.api = api;
  }

  /** @param {Job} job a retraining that waits @returns {Step} */
  promote({ id, result }) {
    return {
      title: `Promote the model of job ${id}?`,
      text: `${result.collection} will be searched in generation ${result.generation}, by the retrained model. ${SWAP}`,
      act: 'Promote', busy: 'Loading the model\u2026',
      run: async () => searchedNow(await this.api.activate(result.collection, result.generation)),
    };
  }

  /** @param {Collection} collection @param {Generation} generation @returns {Step} */
  activate({ name }, { number, model }) {
    return {
      title: `Search ${name} in generation ${number}?`,
      text: `Its vectors are by ${model}. ${SWAP}`,
      act: 'Activate', busy: 'Loading the model\u2026',
      run: async () => searchedNow(await this.api.activate(name, number)),
    };
  }

  /** @param {Collection} collection @param {Generation} before @returns {Step} */
  rollBack({ name }, { number, model }) {
    return {
      title: `Roll ${name} back?`,
      text: `It will be searched as before: in generation ${number}, by ${model}. ${SWAP} A second roll back goes forth again.`,
      act: 'Roll back', busy: 'Loading the model\u2026',
      run: async () => searchedNow(await this.api.rollBack(name)),
    };
  }

  /** @param {Collection} collection @param {Generation} generation @returns {Step} */
  embed({ name }, { number, missing }) {
    return {
      title: `Embed what generation ${number} lacks?`,
      text: `A worker embeds the ${missing} images of ${name} that have no vector in it. What is searched stays as it is.`,
      act: 'Embed', busy: 'Giving the job\u2026',
      run: async () => given(await this.api.give({ kind: 'reindex', collection: name, generation: number })),
    };
  }

  /** @param {Collection} collection @returns {Step} */
  retrain({ name }) {
    return {
      title: `Retrain the model of ${name}?`,
      text: 'A worker trains it further on the images, their texts, and what was said of hits. If the new model is better on held-out images, it waits here to be promoted.',
      act: 'Retrain', busy: 'Giving the job\u2026',
      run: async () => given(await this.api.give({ kind: 'retrain', collection: name })),
    };
  }

  /** @param {Job} job @returns {Step} */
  cancel({ id, kind }) {
    return {
      title: `Cancel job ${id}?`,
      text: `The ${kind} job ends before its time. What it has written stays.`,
      act: 'Cancel the job', busy: 'Cancelling\u2026',
      run: async () => {
        const { state } = await this.api.cancel(id);
        return `Job ${id} is ${state === 'cancelled' ? 'cancelled' : 'being cancelled'}.`;
      },
    };
  }
}

/** @param {Activated} activated */
function searchedNow({ collection, number, model }) {
  return `${collection} is now searched in generation ${number} by ${model}.`;
}

/** @param {Job} job */
function given({ id, kind }) {
  return `Job ${id} (${kind}) waits for a worker.`;
}

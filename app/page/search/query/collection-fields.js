/** The fields of a collection, for the panel of filters and the row: values, groups, and the images that each value has left. */

import { expressionOf, withClause, withFinding } from './filter.js';
import { isRange } from './filter-controls.js';
import { bodyOf, isUnranked } from './query.js';

/**
 * @typedef {import('../api.js').SearchApi} SearchApi
 * @typedef {import('../api.js').Collection} Collection
 * @typedef {import('../api.js').Field} Field
 * @typedef {import('../api.js').FieldValue} FieldValue
 * @typedef {import('./filter.js').Filter} Filter
 * @typedef {import('./query.js').Query} Query
 */

export class CollectionFields {
  /** @type {Collection | null} */
  described = null;
  /** @type {string | null} */
  #requested = null;
  #describing = Promise.resolve();
  /** @type {AbortController | null} */
  #counting = null;

  /**
   * @param {import('./filter-panel.js').FilterPanel} panel
   * @param {import('./query-row.js').QueryRow} row
   * @param {() => {api: SearchApi, collection: string, filter: Filter, query: Query}} now what is searched
   * @param {(hidden: Set<string>) => void} onDescribed called with the fields that are not shown once the collection is described
   */
  constructor(panel, row, now, onDescribed) {
    this.onDescribed = onDescribed;
    this.panel = panel;
    this.row = row;
    this.now = now;
    panel.actions.find = (field, containing) => this.#find(field, containing);
  }

  forget() {
    this.described = null;
    this.#requested = null;
    this.panel.setFields([], []);
    this.row.setGroups([]);
  }

  /** Learn the collection's fields and examples. @returns {Promise<void>} settles when they are loaded, or cannot be */
  describe() {
    const { api, collection } = this.now();
    if (this.#requested !== collection) {
      this.forget();
      this.#requested = collection;
      this.#describing = this.#learn(api, collection);
    }
    return this.#describing;
  }

  /** @param {SearchApi} api @param {string} collection */
  async #learn(api, collection) {
    const questions = [api.collection(collection), api.facets(collection, { field: 'group' })];
    const [described, groups] = await Promise.all(questions).catch(() => [null, null]);
    if (this.#requested !== collection) return;
    if (described === null) {
      this.#requested = null;
      return;
    }
    this.described = described;
    const hidden = new Set(described.hidden_fields);
    const shown = [...groups.fields, ...described.fields].filter(({ name }) => !hidden.has(name));
    this.panel.setFields(shown, described.findings);
    this.row.setGroups(shown.filter(isGroup).map(({ name }) => name));
    this.onDescribed(hidden);
    this.count();
  }

  /**
   * Group hits by a field where the collection has it, unless the reader chose a group.
   *
   * @param {string | null} field null: by none @param {import('./query.js').Query} query @returns {import('./query.js').Query}
   */
  groupedBy(field, query) {
    if (field === null || this.row.groupChosen || ![null, field].includes(query.group)) return query;
    const group = this.described?.fields.some(({ name }) => name === field) ? field : null;
    this.row.showGroup(group);
    return { ...query, group };
  }

  /**
   * Look no words up in a collection without texts, unless the reader chose to.
   *
   * @param {import('./query.js').Query} query @returns {import('./query.js').Query}
   */
  matchedIn(query) {
    const textless = this.described !== null && this.described.examples.every(({ text }) => !text);
    if (!textless || this.row.matchingChosen || !query.words || !query.likeness) return query;
    const matched = { ...query, words: false };
    this.row.showQuery(matched);
    return matched;
  }

  /** Show in the panel how many images are left for each value. */
  async count() {
    const { api, collection, filter, query } = this.now();
    this.#counting?.abort();
    if (this.described === null) return;
    const counting = (this.#counting = new AbortController());
    const counts = await counted(api, collection, filter, wordsOf(query), counting.signal).catch(() => null);
    if (counting !== this.#counting || counts === null) return;
    counts.fields.forEach((field) => this.panel.showCounts(field));
    if (counts.findings) this.panel.showFindings(counts.findings);
  }

  /** @param {string} field @param {string} containing @returns {Promise<FieldValue[]>} values of a field with a text in them */
  async #find(field, containing) {
    const { api, collection, filter, query } = this.now();
    const without = expressionOf(withClause(filter, field, null));
    const { fields } = await api.facets(collection, { filter: without, field, containing, keywords: wordsOf(query) });
    return fields[0].values;
  }
}

/** @param {Query} query @returns {string | undefined} the words that every hit has; with likeness, hits may have none of them */
function wordsOf(query) {
  return isUnranked(query) ? bodyOf(query).keywords : undefined;
}

/**
 * A field or finding that has a condition itself is counted as if it had none; the groups are not among all fields.
 *
 * @param {SearchApi} api @param {string} collection @param {Filter} filter @param {string | undefined} keywords
 * @param {AbortSignal} signal
 * @returns {Promise<{fields: Field[], findings?: import('./finding-controls.js').CountedFinding[]}>}
 */
async function counted(api, collection, filter, keywords, signal) {
  const count = (without, field) => api.facets(collection, { filter: expressionOf(without), keywords, ...(field && { field }) }, signal);
  const [every, fields, findings] = await Promise.all([
    count(filter),
    Promise.all([...new Set([...Object.keys(filter.clauses), 'group'])].map(async (field) => (await count(withClause(filter, field, null), field)).fields[0])),
    Promise.all(Object.keys(filter.findings).map(async (finding) => (await count(withFinding(filter, finding, null))).findings?.find((one) => one.finding === finding))),
  ]);
  const instead = (all, own, name) => [...all.filter((one) => !own.some((other) => other?.[name] === one[name])), ...own.filter(Boolean)];
  return { fields: instead(every.fields, fields, 'name'), findings: every.findings && instead(every.findings, findings, 'finding') };
}

/** Numbers and dates measure an image: no group of images is named by them. @param {Field} field */
function isGroup(field) {
  return !isRange(field) && field.distinct > 1;
}

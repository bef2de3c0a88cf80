/**
 * `<image-search>`: a search over the images of a recoquest service, by text and by image.
 *
 * Attributes: `src`, the address of the service (by default, where this module came from); `collection`, the one collection to search (by default, the
 * reader chooses); `lang`, the language of its texts; `fullpage`, when the element is the whole page: then keys, dropped and pasted images count
 * wherever they land; `group-by`, a field such as `study` by which hits are grouped where the collection has it; `compare`, whether tiles have a
 * button to compare an image with the page's own. Property: `token`. docs/guides/integrate.md has its events.
 */

import { ProblemError, problemFrom } from '../shared/http.js';
import { takeKeys } from '../shared/keys.js';
import { SignedIn, signInForm, takeSignInProblem } from '../shared/sign-in.js';
import { SaveCase } from './cases/save-case.js';
import { OpenedImage } from './image/opened-image.js';
import { Judgements } from './judgements/judgements.js';
import { CollectionFields } from './query/collection-fields.js';
import { FilterPanel } from './query/filter-panel.js';
import { expressionOf, noFilter, withClause, withFinding } from './query/filter.js';
import { takeImages } from './query/image-drop.js';
import { QueryRow } from './query/query-row.js';
import { isEmpty, isUnranked, NO_QUERY, sameQuery, sameSearch, sideOf, withExample, withMatching, withoutExamples, withoutPicture, withoutQuery, withPicture, withText } from './query/query.js';
import { SearchField } from './query/search-field.js';
import { brokenLink, imageIsGone, noCollections, noRole } from './results/notices.js';
import { ResultPages } from './results/result-pages.js';
import { ResultsView } from './results/results-view.js';
import { SearchShell } from './search-shell.js';
import { ServiceElement } from './service-element.js';
import { linkStyles } from './styles.js';
import { say } from './words.js';

/**
 * @typedef {import('./api.js').Hit} Hit
 * @typedef {import('./query/query.js').Query} Query
 * @typedef {import('./query/query.js').SearchState} SearchState
 * @typedef {import('./query/query.js').Side} Side
 */

export class ImageSearch extends ServiceElement {
  static observedAttributes = ['src', 'collection'];

  /** @type {SearchState} */
  #state = { collection: null, query: NO_QUERY, filter: noFilter(), opened: null };
  #imageIsGone = false;
  /** Parameters of a link that cannot be read. @type {string[]} */
  #broken = [];
  #typing = false;
  /** @type {import('./api.js').CollectionSummary[] | null} */
  #collections = null;
  #pages = new ResultPages((cursor, signal) => this.#ask(cursor, signal));
  /** @type {string | null} */
  #imageAddress = null;
  /** @type {AbortController | null} */
  #connection = null;
  #started = Promise.resolve();

  /** @param {ShadowRoot} root */
  build(root) {
    this.styled = linkStyles(root);
    this.field = new SearchField({
      text: (text, typing) => this.#goTo((query) => withText(text && this.results.takesOne ? withoutPicture(query) : query, text), typing),
      image: (image) => this.#goToImage(image),
      dropImage: () => this.#goTo(withoutPicture), mark: () => this.opened.markPicture(this.#imageAddress),
      down: () => this.results.grid.focus(),
    });
    this.judgements = new Judgements({
      send: async (collection, judgement) => {
        await this.api.judge(collection, judgement);
        this.tell('image-judge', { ...judgement, collection });
      },
      changed: (id) => [this.results.grid, this.opened.dialog].forEach((view) => view.showJudged(id)),
      refused: (error) => this.results.showNotKept(problemFrom(error)),
    });
    this.results = new ResultsView({
      picture: (element, link) => this.api.picture(element, link),
      compare: (hit) => this.tell('image-compare', this.described(hit, this.#state.collection)),
      open: (hit) => this.#select(hit), save: ({ id }) => this.saving.open(id), details: ({ id }) => this.opened.open(id),
      mark: (hit, side) => this.#mark(hit.id, side),
      leave: () => this.field.focus(),
      more: () => this.#loadMore(),
      text: (text) => this.#goTo((query) => withText(query, text)),
      pick: () => this.field.pickImage(),
      clearFilter: () => this.#go({ filter: noFilter() }),
      byLikeness: () => this.#match('likeness', true),
      others: (field, value) => this.#go({ query: { ...this.#currentQuery(), group: null }, filter: withClause(this.#state.filter, field, { eq: value }) }),
    }, this.judgements);
    this.panel = new FilterPanel({ change: (filter) => this.#go({ filter }), close: () => this.#openPanel(false) });
    this.row = new QueryRow({
      match: (kind, on) => this.#match(kind, on),
      remove: (id) => this.#mark(id, null),
      clearExamples: () => this.#goTo(withoutExamples),
      open: (id) => this.opened.open(id),
      thumbnail: (element, id) => this.api.picture(element, this.api.thumbnailAddress(this.#state.collection, id)),
      filter: (filter) => this.#go({ filter }),
      search: (change) => this.#goTo(change),
      leave: () => this.field.focus(),
    });
    this.opened = new OpenedImage(() => ({ state: this.#state, hits: this.results.hits, regions: this.fields.described?.regions === true }), {
      api: () => this.api, search: (change) => this.#goTo(change),
      mark: (id, side) => this.#mark(id, side), save: (id) => this.saving.open(id),
      filter: (finding, state) => this.#go({ filter: withFinding(this.#state.filter, finding, state) }),
      turn: (id, step) => {
        this.#state.opened = id;
        this.#announce(step);
      },
      // An image opened by its chip may be a hit as well: the browser has given the focus back to the chip.
      closed: (id) => this.row.hasFocus() || this.results.grid.focusImage(id),
    }, this.judgements);
    this.fields = new CollectionFields(this.panel, this.row, () => ({ ...this.#state, api: this.api }), (hidden) => {
      this.results.grid.hide(hidden);
      this.opened.dialog.hidden = hidden;
      this.field.takeRegions(this.fields.described?.regions === true);
      this.opened.show();
      this.#showOpening();
    });
    this.person = new SignedIn(() => this.api.session, {
      out: () => this.#start(),
      refused: (error) => this.results.showProblem(problemFrom(error), () => this.#start()),
    });
    this.saving = new SaveCase(() => ({ api: this.api, collection: this.#state.collection }), (kept) => {
      [this.results, this.opened.dialog].forEach((view) => view.showSaved(kept));
      this.tell('case-save', kept);
    });
    this.makeApi();
    this.shell = new SearchShell(root, {
      field: this.field.element, row: this.row.element, panel: this.panel.element, results: this.results.element, dialog: this.opened.dialog.element, person: this.person.element,
    }, { collection: (collection) => this.#changeCollection(collection), togglePanel: () => this.#openPanel(this.panel.element.hidden) });
    root.append(this.saving.element);
    this.shell.element.hidden = true;
  }

  /** What is searched for and shown. @returns {SearchState} */
  get state() { return { ...this.#state }; }

  connectedCallback() {
    super.connectedCallback();
    const target = this.hasAttribute('fullpage') ? document : this;
    this.results.grid.comparable = this.hasAttribute('compare');
    this.#connection = new AbortController();
    const stopDrop = takeImages(target, {
      over: (over) => this.shell.showDrop(over),
      image: (image) => this.#goToImage(image),
      refused: (reason) => this.#refuse(reason),
    });
    const stopKeys = takeKeys(target, {
      search: () => this.field.focus(),
      filters: () => this.#openPanel(this.panel.element.hidden),
      words: () => this.#match('words', !this.#state.query.words),
      help: () => this.shell.showShortcuts(),
    });
    this.#connection.signal.addEventListener('abort', () => { stopDrop(); stopKeys(); });
    this.styled.then(() => this.#appear());
    this.begin();
  }

  disconnectedCallback() {
    this.#connection?.abort();
    this.#pages.stop();
  }

  /** @param {string} name @param {string | null} before @param {string | null} now */
  attributeChangedCallback(name, before, now) {
    if (before === now) return;
    if (name === 'src') this.makeApi();
    else this.#state.collection = now;
    if (!this.isConnected || !this.#connection) return;
    if (name === 'src') this.#start();
    else this.#enter();
  }

  /**
   * Show another state, as when the reader goes back.
   *
   * @param {SearchState} state
   * @param {{imageIsGone?: boolean, broken?: string[]}} [options] whether it stood for an image that is gone; what of its address cannot be read
   */
  restore(state, { imageIsGone: gone = false, broken = [] } = {}) {
    const now = this.#state;
    const collection = this.getAttribute('collection') ?? state.collection ?? now.collection;
    const same = sameSearch({ ...state, collection }, now) && gone === this.#imageIsGone && broken.length + this.#broken.length === 0;
    this.#state = { ...state, collection, ...(same && { query: now.query, filter: now.filter }) };
    this.#imageIsGone = gone;
    this.#broken = broken;
    this.#typing = false;
    if (this.#collections === null) return;
    if (same) this.opened.show();
    else this.#enter();
  }

  /** Said once the beginning is there, which would replace it. @param {string} reason */
  async #refuse(reason) {
    await this.#started;
    this.#pages.stop();
    this.results.showProblem(new ProblemError({ title: say('field.refused'), detail: reason }), () => this.field.pickImage());
  }

  begin() {
    this.#started = this.#start();
  }

  #appear() {
    this.shell.element.hidden = false;
    const reads = matchMedia('(hover: hover)').matches;
    if (this.hasAttribute('fullpage') && reads && isEmpty(this.#state.query) && this.#state.opened === null) this.field.focus();
  }

  /** Load the collections, then show the state that was requested meanwhile. */
  async #start() {
    const api = this.api;
    try {
      await api.session.ready();
      if (api !== this.api) return;
      this.person.show();
      if (api.session.needsKey) {
        this.#askForKey(say('notice.keyNeeded'));
        return;
      }
      if (api.session.hasNoRole) {
        this.results.showNotice(noRole(api.session.name));
        return;
      }
      const collections = await api.collections();
      if (api !== this.api) return;
      this.#collections = collections;
      this.#state.collection ??= this.getAttribute('collection') ?? (collections.find(({ generation }) => generation) ?? collections[0])?.name ?? null;
      this.#enter({ keepTyped: true });
    } catch (error) {
      if (api === this.api) this.#showProblem(error, () => this.#start());
    }
  }

  /** Let somebody sign in, then go on. @param {string | null} why null: the session has ended */
  #askForKey(why) {
    this.#collections = null;
    this.#pages.stop();
    this.opened.dialog.dismiss();
    this.results.showNotice(signInForm(this.api.session, why, () => this.#start(), this.hasAttribute('fullpage') ? takeSignInProblem() : null));
  }

  /** @param {unknown} error @param {() => void} retry @param {boolean} [filtered] */
  #showProblem(error, retry, filtered = false) {
    const problem = problemFrom(error);
    const { session } = this.api;
    if (problem.status !== 401 || !session.isOwn) {
      this.results.showProblem(problem, retry, filtered);
      return;
    }
    session.end();
    this.person.show();
    this.#askForKey(null);
  }

  /** @param {{keepTyped?: boolean}} [options] whether to leave what the reader typed while the page was starting */
  #enter({ keepTyped = false } = {}) {
    this.shell.showCollections(this.#collections ?? [], this.#state.collection, this.hasAttribute('collection'));
    if (this.#state.collection === null) {
      this.results.showNotice(noCollections());
      return;
    }
    this.fields.describe();
    this.#search(keepTyped);
    this.opened.show();
  }

  /** Change what is searched for. @param {Partial<SearchState>} change @param {boolean} [typing] */
  #go(change, typing = false) {
    const before = this.#state;
    this.#state = { ...before, query: this.#currentQuery(), ...change, opened: null };
    this.#imageIsGone = false;
    this.#broken = [];
    this.opened.dialog.dismiss();
    if (change.query && sameQuery(change.query, before.query) && !typing && this.#typing) {
      this.#typing = false;
      return;
    }
    const replaces = typing && this.#typing;
    this.#typing = typing;
    this.#announce(replaces ? 'replace' : 'push');
    this.#search();
  }

  /** @param {(query: Query) => Query} change @param {boolean} [typing] */
  #goTo(change, typing = false) {
    this.#go({ query: change(this.#currentQuery()) }, typing);
  }

  /** What is searched for, with the text as it is in the field: it may not have been searched for yet. @returns {Query} */
  #currentQuery() {
    return withText(this.#state.query, this.field.input.value);
  }

  /** @param {File} file */
  #goToImage(file) {
    this.#goTo((query) => withPicture(query, { file, name: file.name || say('field.pasted') }));
  }

  /** Make an image an example, or no longer one. @param {string} id @param {Side | null} side */
  #mark(id, side) {
    const query = this.#currentQuery();
    if (sideOf(query, id) === side) return;
    this.#go({ query: withExample(this.results.takesOne ? withoutQuery(query) : query, id, side) });
  }

  /** @param {keyof import('./query/query.js').Matching} kind @param {boolean} on */
  #match(kind, on) {
    this.row.matchingChosen = true;
    const query = withMatching(this.#currentQuery(), kind, on);
    if (query.text) this.#go({ query });
    else {
      this.#state.query = query;
      this.row.showQuery(this.#state.query);
      this.#announce('replace');
    }
  }

  /** @param {string} collection */
  #changeCollection(collection) {
    const current = this.#currentQuery();
    const query = { ...current, words: current.words || !this.row.matchingChosen };
    this.#state.collection = collection;
    this.results.grid.clear();
    this.fields.forget();
    this.#go({ collection, filter: noFilter(), query: withoutExamples(query) });
    this.fields.describe();
  }

  #search(keepTyped = false) {
    this.#pages.stop();
    this.#showQuery(keepTyped);
    // Until the collections are loaded nothing is searched: #start does that.
    if (this.#collections === null) return;
    this.#showOpening();
    this.fields.count();
    if (this.#imageIsGone || this.#broken.length > 0) {
      this.results.showNotice(this.#imageIsGone ? imageIsGone() : brokenLink(this.#broken, () => this.#go({})));
      return;
    }
    this.results.showSearching(isUnranked(this.#state.query));
    this.#pages.first((page) => this.#showFirst(page),
      (error) => this.#showProblem(error, () => this.#search(), expressionOf(this.#state.filter) !== null));
  }

  /** @param {import('./api.js').HitPage} page */
  #showFirst(page) {
    const { collection, query } = this.#state;
    this.judgements.startFor(this.api.base.href, collection, query);
    this.results.grid.group = query.group;
    this.results.showPage(page, query.text && query.words ? { likeness: !isUnranked(query) } : null);
    this.opened.show();
  }

  #loadMore() {
    this.results.showLoadingMore();
    this.#pages.next((page) => this.results.appendPage(page), (error) => this.results.showMoreProblem(problemFrom(error), () => this.#loadMore()));
  }

  /** @param {string | null} cursor @param {AbortSignal} signal @returns {Promise<import('./api.js').HitPage>} */
  async #ask(cursor, signal) {
    const field = this.getAttribute('group-by');
    const { text, words, likeness } = this.#state.query;
    if (field !== null || (text && words && likeness)) await this.fields.describe();
    this.#state.query = this.fields.matchedIn(this.fields.groupedBy(field, this.#state.query));
    try {
      return await this.api.page(this.#state, cursor, signal);
    } catch (error) {
      const { query } = this.#state;
      const refused = problemFrom(error).fields.some((name) => name.endsWith('keywords'));
      if (!refused || this.row.matchingChosen || !query.likeness) throw error;
      // A text without a word, or with more than can be looked up.
      return this.api.page({ ...this.#state, query: { ...query, words: false } }, cursor, signal);
    }
  }

  /** Say above the whole collection how to begin. */
  #showOpening() {
    const { query, filter } = this.#state;
    const begins = isEmpty(query) && expressionOf(filter) === null && !this.#imageIsGone && this.#broken.length === 0;
    this.results.showOpening(begins ? this.fields.described : null);
  }

  #showQuery(keepTyped) {
    const { collection, query, filter } = this.#state;
    if (this.#imageAddress) URL.revokeObjectURL(this.#imageAddress);
    this.#imageAddress = query.picture && URL.createObjectURL(query.picture.file);
    const typed = keepTyped && !query.text ? this.field.input.value : query.text;
    this.field.show(typed, query.picture && { ...query.picture, address: this.#imageAddress });
    this.row.showQuery(query);
    this.row.showFilter(filter);
    this.shell.showCollections(this.#collections ?? [], collection, this.hasAttribute('collection'));
    this.shell.showFilter(filter);
    this.panel.show(filter);
  }

  /** @param {Hit} hit */
  #select(hit) {
    if (this.tell('image-select', this.described(hit, this.#state.collection))) this.opened.open(hit.id);
  }

  /** @param {boolean} open */
  #openPanel(open) {
    this.panel.element.hidden = !open;
    this.shell.showPanelOpen(open);
    if (open) this.panel.focus();
    else this.shell.filterButton.focus();
  }

  /** Tell the page around. @param {'push' | 'replace' | 'close'} step */
  #announce(step) {
    this.tell('search-change', { state: this.state, step });
  }
}

customElements.define('image-search', ImageSearch);

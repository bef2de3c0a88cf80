/**
 * `<case-book>`: the saved cases of a collection of a recoquest service, list by list.
 *
 * Attributes: `src`, the address of the service (by default, where this module came from); `collection`; `lang`, the language of its texts; `theme`.
 * Property: `token`, a key or a token that each request brings. Events: `image-select` and `image-compare`, as those of `<image-search>`.
 */

import { ConfirmDialog } from '../shared/confirm-dialog.js';
import { fill, h } from '../shared/dom.js';
import { iconButton } from '../shared/icon-button.js';
import { problemFrom } from '../shared/http.js';
import { problemNotice } from '../shared/problem-notice.js';
import { language, speakAt } from '../shared/words.js';
import { CasesApi } from './cases-api.js';
import { EditDialog } from './edit-dialog.js';
import { entry } from './entry.js';
import { say } from './words.js';

/** @typedef {import('./cases-api.js').CaseList} CaseList */

const SHEETS = ['../shared/theme.css', '../shared/controls.css', 'case-book.css'];
const NOTHING = new Set();

export class CaseBook extends HTMLElement {
  static observedAttributes = ['src', 'collection'];

  /** @type {string | null} */
  #token = null;
  /** @type {CasesApi | null} */
  #api = null;
  /** @type {CaseList[]} */
  #lists = [];
  /** Fields that are not shown. @type {ReadonlySet<string>} */
  #hidden = NOTHING;
  /** The list that is shown. @type {string | null} */
  #list = null;
  /** @type {AbortController | null} */
  #request = null;

  constructor() {
    super();
    this.attachShadow({ mode: 'open' });
  }

  connectedCallback() {
    if (this.#api === null) this.#build();
    this.refresh();
  }

  disconnectedCallback() {
    this.#request?.abort();
  }

  attributeChangedCallback() {
    if (this.#api === null || !this.isConnected) return;
    this.#makeApi();
    this.#list = null;
    this.refresh();
  }

  /** @param {string | null} token */
  set token(token) {
    this.#token = token;
    if (this.#api === null) return;
    this.#makeApi();
    this.refresh();
  }

  /** Read the lists again, and show one. @param {string | null} [list] its id; by default the one that was shown, or the first */
  async refresh(list = this.#list) {
    const collection = this.getAttribute('collection');
    if (this.#api === null) return;
    const request = this.#begin();
    if (collection === null) {
      this.#clear();
      return;
    }
    try {
      [this.#lists, this.#hidden] = await Promise.all([this.#api.lists(collection, request.signal), this.#api.hidden(collection, request.signal)]);
      if (request !== this.#request) return;
      this.#list = (this.#lists.find(({ id }) => id === list) ?? this.#lists[0])?.id ?? null;
      this.#showLists();
      fill(this.entries);
      if (this.#list === null) fill(this.status, h('p', { class: 'quiet' }, say('book.none')));
      else await this.#showPage(null, request);
    } catch (error) {
      this.#refuse(error, request, () => this.refresh());
    }
  }

  #build() {
    speakAt(this);
    this.#makeApi();
    this.choice = h('select', { class: 'select', 'aria-label': say('book.list'), on: { change: () => this.#choose(this.choice.value) } });
    this.exporting = h('a', { class: 'button', title: say('book.exportWhat'), download: 'teaching-file.zip' }, say('book.export'));
    this.removal = iconButton('close', say('book.removeList'), () => this.#removeList());
    this.renaming = iconButton('edit', say('book.rename'), () => this.#rename());
    this.status = h('div', { class: 'book-status', role: 'status' });
    this.entries = h('ul', { class: 'entries', role: 'list' });
    this.below = h('div', { class: 'book-below' });
    this.confirm = new ConfirmDialog({ done: () => this.refresh(), refused: () => this.refresh() });
    this.editing = new EditDialog(() => this.refresh());
    const links = SHEETS.map((name) => h('link', { rel: 'stylesheet', href: new URL(name, import.meta.url).href }));
    const element = h('section', { lang: language(), 'aria-label': say('book.title') },
      h('header', { class: 'book-head' }, h('h2', {}, say('book.title')), this.choice, this.renaming, this.exporting, this.removal),
      this.status, this.entries, this.below);
    const dialogs = [this.confirm.element, this.editing.element];
    for (const dialog of dialogs) dialog.lang = language();
    this.shadowRoot.append(...links, element, ...dialogs);
    this.#showLists();
  }

  #makeApi() {
    this.#api = new CasesApi(this.getAttribute('src') ?? new URL('../..', import.meta.url), this.#token);
  }

  /** @param {string} list its id */
  #choose(list) {
    // Buttons are about the chosen list at once, not about the former one until the answer comes.
    this.#list = list;
    this.#showLists();
    fill(this.entries);
    fill(this.below);
    this.refresh();
  }

  #clear() {
    this.#lists = [];
    this.#list = null;
    this.#showLists();
    [this.status, this.entries, this.below].forEach((part) => fill(part));
  }

  #begin() {
    this.#request?.abort();
    return (this.#request = new AbortController());
  }

  #showLists() {
    const none = this.#list === null;
    fill(this.choice, ...this.#lists.map(({ id, name, images }) => h('option', { value: id, selected: id === this.#list }, say('book.option', { name, count: images }))));
    const address = none ? null : this.#api.exportAddress(this.getAttribute('collection'), this.#list);
    this.choice.hidden = this.renaming.hidden = this.removal.hidden = none;
    this.exporting.hidden = address === null;
    if (address !== null) this.exporting.href = address;
  }

  /** @param {string | null} cursor of the page before @param {AbortController} request */
  async #showPage(cursor, request) {
    const page = await this.#api.page(this.getAttribute('collection'), this.#list, cursor, request.signal);
    if (request !== this.#request) return;
    fill(this.status, page.images === 0 && h('p', { class: 'quiet' }, say('book.empty')), page.images > 0 && h('p', { class: 'unseen' }, say('book.entries', { count: page.images })));
    this.entries.append(...page.cases.map((saved) => this.#entry(saved)));
    fill(this.below, page.next_cursor !== null && h('button', { class: 'button', type: 'button', on: { click: () => this.#more(page.next_cursor) } }, say('book.more')));
  }

  /** @param {string} cursor */
  async #more(cursor) {
    const request = this.#begin();
    const first = this.entries.children.length;
    try {
      await this.#showPage(cursor, request);
      this.entries.children[first]?.querySelector('button').focus();
    } catch (error) {
      this.#refuse(error, request, () => this.#more(cursor));
    }
  }

  /** @param {import('./cases-api.js').SavedCase} saved @returns {HTMLElement} */
  #entry(saved) {
    const { image } = saved;
    const links = Object.fromEntries(Object.entries(image.links).map(([name, link]) => [name, this.#api.resolve(link)]));
    const tell = (name) => this.dispatchEvent(new CustomEvent(name, { detail: { ...image, collection: this.getAttribute('collection'), links }, bubbles: true, composed: true, cancelable: true }));
    const element = entry(saved, this.#hidden, {
      picture: (picture, link) => this.#api.picture(picture, link),
      open: () => tell('image-select'),
      compare: () => tell('image-compare'),
      edit: () => this.#editNote(saved, (note) => {
        const changed = this.#entry({ ...saved, ...note });
        element.replaceWith(changed);
        return changed.querySelector('.entry-edit');
      }),
      takeOut: () => this.#ask(say('entry.remove'), say('confirm.entry', { id: image.id }), (collection, list) => this.#api.takeOut(collection, list, image.id)),
    });
    return element;
  }

  /** @param {import('./cases-api.js').SavedCase} saved @param {(note: import('./cases-api.js').Note) => HTMLElement} show */
  #editNote(saved, show) {
    const [collection, list, { note: text, image: { id } }] = [this.getAttribute('collection'), this.#list, saved];
    this.editing.ask({ title: say(text === '' ? 'entry.noteOn' : 'entry.editOf', { id }), label: say('edit.note'), text, isNote: true, save: async (written) => {
      const { note, saved: when, saved_by: by, etag } = await this.#api.writeNote(collection, list, saved, written);
      return show({ note, saved: when, saved_by: by, etag });
    } });
  }

  #rename() {
    const collection = this.getAttribute('collection');
    const list = this.#lists.find(({ id }) => id === this.#list);
    this.editing.ask({ title: say('book.rename'), label: say('edit.name'), text: list.name, isNote: false, save: async (name) => {
      await this.#api.rename(collection, list, name);
      await this.refresh(list.id);
      return null;
    } });
  }

  #removeList() {
    const { name, images } = this.#lists.find(({ id }) => id === this.#list);
    this.#ask(say('book.removeList'), say('confirm.list', { name, count: images }), (collection, list) => this.#api.removeList(collection, list));
  }

  /** @param {string} title @param {string} text @param {(collection: string, list: string) => Promise<unknown>} change */
  #ask(title, text, change) {
    const [collection, list] = [this.getAttribute('collection'), this.#list];
    this.confirm.ask({ title, text, act: title, busy: say('confirm.removing'), run: async () => {
      await change(collection, list);
      return '';
    } });
  }

  /** @param {unknown} error @param {AbortController} request @param {() => void} retry */
  #refuse(error, request, retry) {
    if (request === this.#request) fill(this.status, problemNotice(problemFrom(error), retry));
  }
}

customElements.define('case-book', CaseBook);

/** The field for a sentence and an image, with the image's chip. */

import { fill, h } from '../../shared/dom.js';
import { iconButton } from '../../shared/icon-button.js';
import { icon } from '../../shared/icons.js';
import { say } from '../words.js';
import { regionMark } from './region-mark.js';

const PAUSE_MS = 700;
const SHORTEST_TYPED = 3;
/** Browsers seldom know DICOM files by a type. */
const IMAGE_TYPES = 'image/*,application/dicom,.dcm,.dicom';

export class SearchField {
  #timer = 0;
  #picked = h('input', { type: 'file', accept: IMAGE_TYPES, class: 'unseen', tabIndex: -1, 'aria-hidden': 'true',
    on: { change: () => this.#onPick() } });

  /**
   * @param {{text: (text: string, typing: boolean) => void, image: (image: File) => void, dropImage: () => void, mark: () => void,
   *   down: () => void}} actions `typing` is true when a pause in typing, not Enter, asks for the search; `mark` lets a part of the image be marked
   */
  constructor(actions) {
    this.actions = actions;
    this.input = h('input', { class: 'field-input', type: 'search', autocomplete: 'off', enterKeyHint: 'search', spellcheck: false,
      maxLength: 4000, 'aria-label': say('field.describe'), 'aria-keyshortcuts': '/',
      on: { input: (event) => this.#onInput(event), keydown: (event) => this.#onKey(event) } });
    this.chip = h('span', { class: 'field-chip', hidden: true });
    this.markButton = iconButton('region', say('field.markPart'), () => actions.mark(), { hidden: true });
    this.clearButton = iconButton('close', say('field.clear'), () => this.#clear(), { hidden: true });
    this.element = h('form', { class: 'field', role: 'search', on: { submit: (event) => this.#onSubmit(event) } },
      icon('search'), this.chip, this.input, this.clearButton,
      iconButton('image', say('field.byImage'), () => this.pickImage()),
      h('button', { class: 'button primary field-go', type: 'submit' }, say('field.go')), this.#picked);
    this.#invite(false);
  }

  focus() {
    this.input.focus();
    this.input.select();
  }

  /** @param {boolean} taken whether a part of the image may be searched by */
  takeRegions(taken) {
    this.markButton.hidden = !taken;
  }

  /** @param {string} text @param {{name: string, address: string, box: import('./query.js').Box | null} | null} image that is searched with in addition to the text */
  show(text, image) {
    clearTimeout(this.#timer);
    this.#showImage(image);
    if (this.input.value.trim() !== text) this.input.value = text;
    this.#update();
  }

  /** @param {{name: string, address: string, box?: import('./query.js').Box | null} | null} image */
  #showImage(image) {
    this.chip.hidden = image === null;
    if (image === null) {
      fill(this.chip);
      return;
    }
    const picture = h('img', { src: image.address, alt: '', on: { error: () => picture.remove() } });
    const name = image.box ? say('field.partOf', { name: image.name }) : image.name;
    fill(this.chip, image.box ? h('span', { class: 'chip-region' }, picture, regionMark(image.box)) : picture, h('span', { class: 'field-chip-name' }, name), this.markButton,
      iconButton('close', say('field.removeImage', { name: image.name }), () => this.#dropImage(), { title: say('row.remove') }));
  }

  pickImage() {
    this.#picked.click();
  }

  #update() {
    this.#invite(!this.chip.hidden);
    this.clearButton.hidden = this.input.value === '';
  }

  /** @param {boolean} withImage */
  #invite(withImage) {
    const touched = matchMedia('(hover: none)').matches;
    const invitation = touched ? say('field.describe') : say('field.describeOrDrop');
    this.input.placeholder = withImage ? say('field.addWords') : invitation;
  }

  #clear() {
    clearTimeout(this.#timer);
    this.input.value = '';
    this.#update();
    this.input.focus();
    this.actions.text('', false);
  }

  #dropImage() {
    clearTimeout(this.#timer);
    this.#showImage(null);
    this.#update();
    this.input.focus();
    this.actions.dropImage();
  }

  #onPick() {
    const [image] = this.#picked.files;
    this.#picked.value = '';
    if (image) this.actions.image(image);
  }

  /** @param {InputEvent} event */
  #onInput(event) {
    clearTimeout(this.#timer);
    this.#update();
    const text = this.input.value.trim();
    if (event.isComposing || text.length < SHORTEST_TYPED) return;
    this.#timer = setTimeout(() => this.actions.text(text, true), PAUSE_MS);
  }

  /** @param {SubmitEvent} event */
  #onSubmit(event) {
    event.preventDefault();
    clearTimeout(this.#timer);
    this.actions.text(this.input.value.trim(), false);
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.key === 'ArrowDown') {
      event.preventDefault();
      this.actions.down();
    } else if (event.key === 'Backspace' && this.input.value === '' && !this.chip.hidden) this.#dropImage();
  }
}

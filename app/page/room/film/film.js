/**
 * A film as it is read: its values, as far as pictures of 8 bits through several windows tell them. A first picture is shown at once; one
 * through a wide window gives coarse values, and one through the chosen window gives fine values of the range that is viewed.
 */

import { isSameWindow, levelsOf, misfit, pixelsOf, planeOf, rangeOf, refine, windowOf } from './grey.js';

/**
 * @typedef {import('./films-api.js').FilmRecord} FilmRecord
 * @typedef {import('./films-api.js').FilmsApi} FilmsApi
 * @typedef {import('./grey.js').GreyWindow} GreyWindow
 * @typedef {{width: number, height: number, grey: Uint8Array | null, pixels: Uint8ClampedArray | null}} Picture one of both, as it is grey or has colours
 */

const DEEP_TYPES = ['image/png', 'image/tiff', 'application/dicom'];
const EIGHT_BITS = Object.freeze({ low: 0, high: 255 });
/** Differences from what a window shows by which a file's own curve is detected, in grey levels. */
const CURVED = 3;
/** The wide window reaches so far beyond that of the search, in widths of it. */
const BEYOND = 1.5;
/** Where all values are so much more than the window, their codes would be too coarse. */
const WIDEST = 64;
/** A window is shown as it is if a picture through one that is not much wider was loaded. */
const FINE_ENOUGH = 1.25;

export class Film {
  /** Values; null: not loaded yet. @type {import('./grey.js').Plane | null} */
  #plane = null;
  /** Whether the smallest value is white: values have the other sign then. */
  smallestIsWhite = false;
  /** Windows through which the film was loaded. @type {GreyWindow[]} */
  #loaded = [];
  /** Whether values beyond the window of the search are loaded. */
  isReady = false;
  /** Whether its values are those of the file. */
  isDeep = false;

  /** @param {FilmsApi} api @param {string} collection @param {FilmRecord} record @param {Picture} picture through the window of the search */
  constructor(api, collection, record, picture) {
    this.api = api;
    this.collection = collection;
    this.record = record;
    this.picture = picture;
    this.range = EIGHT_BITS;
    this.home = windowOf(EIGHT_BITS);
    if (picture.grey !== null) this.#plane = planeOf(picture.grey, this.home, this.range);
  }

  get id() {
    return this.record.id;
  }

  get isColoured() {
    return this.picture.grey === null;
  }

  get isCt() {
    return this.record.metadata.modality === 'CT' && this.isDeep;
  }

  /** Learn its values, where they have more than 8 bits. @param {AbortSignal} signal */
  async learn(signal) {
    const { grey } = this.picture;
    const levels = grey !== null && DEEP_TYPES.includes(this.record.media_type) ? await this.api.levels(this.collection, this.id, signal) : null;
    if (levels?.deep && levels.automatic !== null) await this.#learnValues(grey, levels, signal);
    this.isReady = true;
  }

  /** Load the values that a window shows, if they are too coarse. @param {GreyWindow} window @param {AbortSignal} signal @returns {Promise<boolean>} whether more was loaded */
  async sharpen(window, signal) {
    if (!this.isReady || !this.isDeep || this.#knows(window)) return false;
    const { grey } = await readPicture(await this.api.picture(this.collection, this.record, this.stored(window), signal));
    if (grey === null) return false;
    refine(this.#plane, grey, window);
    this.#loaded.push(window);
    return true;
  }

  /** @param {GreyWindow} window @returns {GreyWindow} in the values of the file */
  stored({ centre, width }) {
    return { centre: this.smallestIsWhite ? -centre : centre, width };
  }

  /**
   * @param {GreyWindow} window @param {boolean} inverted @param {number} stride 1: every pixel, 2: every second one of every second row
   * @returns {ImageData}
   */
  paint(window, inverted, stride) {
    const { width, height } = this.picture;
    const image = new ImageData(Math.ceil(width / stride), Math.ceil(height / stride));
    const target = new Uint32Array(image.data.buffer);
    const shown = this.isColoured ? this.#colours(window, inverted) : this.#greys(window, inverted);
    let index = 0;
    for (let row = 0; row < height; row += stride) {
      const end = (row + 1) * width;
      for (let from = row * width; from < end; from += stride) target[index++] = shown(from);
    }
    return image;
  }

  /** @param {GreyWindow} window @param {boolean} inverted @returns {(index: number) => number} */
  #greys(window, inverted) {
    // The film as it is searched, with any curve of its file.
    const [codes, levels] = isSameWindow(window, this.home)
      ? [this.picture.grey, levelsOf(windowOf(EIGHT_BITS), EIGHT_BITS, inverted, 255)]
      : [this.#plane.codes, levelsOf(window, this.#plane.range, inverted)];
    const pixels = pixelsOf(levels);
    return (index) => pixels[codes[index]];
  }

  /** @param {GreyWindow} window @param {boolean} inverted @returns {(index: number) => number} */
  #colours(window, inverted) {
    const levels = levelsOf(window, EIGHT_BITS, inverted, 255);
    const pixels = new Uint32Array(this.picture.pixels.buffer);
    return (index) => {
      const pixel = pixels[index];
      return (((pixel >>> 24) << 24) | (levels[(pixel >>> 16) & 255] << 16) | (levels[(pixel >>> 8) & 255] << 8) | levels[pixel & 255]) >>> 0;
    };
  }

  /** @param {Uint8Array} grey @param {import('./films-api.js').GreyLevels} levels @param {AbortSignal} signal */
  async #learnValues(grey, levels, signal) {
    const { automatic } = levels;
    const { low, high } = rangeOf(automatic);
    // Not around the same centre: so it is seen which end is white.
    const wide = windowOf({ low: Math.max(levels.smallest, low - BEYOND * automatic.width), high: Math.min(levels.largest, high + BEYOND * automatic.width) + automatic.width / 8 });
    const { grey: widePicture } = await readPicture(await this.api.picture(this.collection, this.record, wide, signal));
    const fits = [false, true].map((white) => misfit(grey, automatic, widePicture, wide, white));
    this.smallestIsWhite = fits[1] < fits[0];
    const isCurved = Math.min(...fits) > CURVED;
    const narrow = isCurved ? (await readPicture(await this.api.picture(this.collection, this.record, automatic, signal))).grey : grey;
    const reach = (WIDEST * automatic.width) / 2;
    const range = { low: Math.max(Math.min(levels.smallest, low), low - reach), high: Math.min(Math.max(levels.largest, high), high + reach) };
    this.isDeep = true;
    this.range = this.smallestIsWhite ? { low: -range.high, high: -range.low } : range;
    this.home = this.#bright(automatic);
    this.#plane = planeOf(widePicture, this.#bright(wide), this.range);
    refine(this.#plane, narrow, this.home);
    this.#loaded = [this.#bright(wide), this.home];
  }

  /** @param {GreyWindow} window in stored values */
  #bright({ centre, width }) {
    return { centre: this.smallestIsWhite ? -centre : centre, width };
  }

  /** @param {GreyWindow} window */
  #knows(window) {
    const { low, high } = rangeOf(window);
    return this.#loaded.some((one) => rangeOf(one).low <= Math.max(low, this.range.low) && rangeOf(one).high >= Math.min(high, this.range.high) && one.width <= FINE_ENOUGH * window.width);
  }
}

/**
 * @param {FilmsApi} api @param {string} collection @param {string} id @param {AbortSignal} signal
 * @returns {Promise<Film>} as it is searched; `learn` loads its values
 */
export async function openFilm(api, collection, id, signal) {
  const record = await api.film(collection, id, signal);
  return new Film(api, collection, record, await readPicture(await api.picture(collection, record, null, signal)));
}

/** @param {Blob} file @returns {Promise<Picture>} */
async function readPicture(file) {
  const bitmap = await createImageBitmap(file, { colorSpaceConversion: 'none', premultiplyAlpha: 'none' });
  const { width, height } = bitmap;
  const context = new OffscreenCanvas(width, height).getContext('2d', { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  const { data } = context.getImageData(0, 0, width, height);
  const grey = greyOf(data);
  return { width, height, grey, pixels: grey === null ? data : null };
}

/** @param {Uint8ClampedArray} pixels @returns {Uint8Array | null} null where they have colours or are transparent */
function greyOf(pixels) {
  const grey = new Uint8Array(pixels.length / 4);
  for (let index = 0; index < grey.length; index += 1) {
    const level = pixels[4 * index];
    if (pixels[4 * index + 1] !== level || pixels[4 * index + 2] !== level || pixels[4 * index + 3] !== 255) return null;
    grey[index] = level;
  }
  return grey;
}

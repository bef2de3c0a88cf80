/**
 * Grey values and windows. A larger value is brighter always: values of films whose smallest value is white are taken with the other sign.
 *
 * @typedef {{centre: number, width: number}} GreyWindow
 * @typedef {{low: number, high: number}} Range
 * @typedef {{codes: Uint16Array, range: Range}} Plane values of a film: codes from 0 to 65,535 over a range
 * @typedef {'film' | 'lung' | 'mediastinum' | 'bone' | 'all'} Preset
 */

const LAST_CODE = 65_535;
const LAST_LEVEL = 255;
/** Pixels that the window changes by a factor of e, and by its own width. */
const WIDTH_PIXELS = 300;
const CENTRE_PIXELS = 400;
/** Narrowest window as a share of all values. */
const NARROWEST = 1 / 8000;

/** By the keys 1 to 5. @type {Preset[]} */
export const PRESETS = ['film', 'lung', 'mediastinum', 'bone', 'all'];

/** Presets of radiographs, whose values have no common unit: centre and width as shares of the window that the film is searched with. */
const SHARES = { lung: [0.35, 0.7], mediastinum: [0.7, 0.6], bone: [0.6, 0.45] };
/** Presets of CT, in Hounsfield units. */
const HOUNSFIELD = { lung: [-600, 1500], mediastinum: [40, 400], bone: [400, 1800] };

/** @param {GreyWindow} window @returns {Range} the values that become black and white */
export function rangeOf({ centre, width }) {
  return { low: centre - width / 2, high: centre + width / 2 };
}

/** @param {Range} range @returns {GreyWindow} */
export function windowOf({ low, high }) {
  return { centre: (low + high) / 2, width: high - low };
}

/**
 * @param {Preset} preset @param {GreyWindow} home the window that the film is searched with @param {Range} all its values @param {boolean} isCt
 * @returns {GreyWindow}
 */
export function presetWindow(preset, home, all, isCt) {
  if (preset === 'film') return home;
  if (preset === 'all') return windowOf(all);
  const [centre, width] = isCt ? HOUNSFIELD[preset] : SHARES[preset];
  return isCt ? { centre, width } : { centre: rangeOf(home).low + centre * home.width, width: width * home.width };
}

/**
 * As viewers have it: to the right the window is wider, upwards all is brighter.
 *
 * @param {GreyWindow} window where the drag began @param {number} x @param {number} y pixels since @param {Range} all @returns {GreyWindow}
 */
export function draggedWindow({ centre, width }, x, y, { low, high }) {
  const range = high - low;
  return {
    centre: Math.min(high, Math.max(low, centre + width * y / CENTRE_PIXELS)),
    width: Math.min(2 * range, Math.max(range * NARROWEST, width * Math.exp(x / WIDTH_PIXELS))),
  };
}

/** @param {GreyWindow} window @param {GreyWindow} from the first film's own @param {GreyWindow} to the second one's own @returns {GreyWindow} as far from its own */
export function windowInStep({ centre, width }, from, to) {
  return { centre: to.centre + (centre - from.centre) / from.width * to.width, width: width / from.width * to.width };
}

/** @param {GreyWindow} a @param {GreyWindow} b */
export function isSameWindow(a, b) {
  return a.centre === b.centre && a.width === b.width;
}

/**
 * @param {GreyWindow} window @param {Range} range of the codes @param {boolean} inverted @param {number} [last] largest code
 * @returns {Uint8Array} the grey level of each code
 */
export function levelsOf(window, { low, high }, inverted, last = LAST_CODE) {
  const black = rangeOf(window).low;
  const levels = new Uint8ClampedArray(last + 1);
  for (let code = 0; code <= last; code += 1) {
    const level = LAST_LEVEL * (low + (high - low) * code / last - black) / window.width;
    levels[code] = inverted ? LAST_LEVEL - Math.min(LAST_LEVEL, Math.max(0, level)) : level;
  }
  return new Uint8Array(levels.buffer);
}

/** @param {Uint8Array} levels @returns {Uint32Array} opaque grey pixels as ImageData has them on machines of today, the least byte first */
export function pixelsOf(levels) {
  return Uint32Array.from(levels, (level) => level * 0x010101 + 0xff000000);
}

/**
 * Values as far as a picture of 8 bits through a window tells them.
 *
 * @param {Uint8Array} picture @param {GreyWindow} window @param {Range} range of the codes @returns {Plane}
 */
export function planeOf(picture, window, range) {
  const table = codesOf(window, range);
  return { codes: Uint16Array.from(picture, (level) => table[level]), range };
}

/**
 * Merge a picture through another window: values that it contradicts are replaced, others may already be finer.
 *
 * @param {Plane} plane @param {Uint8Array} picture @param {GreyWindow} window
 */
export function refine({ codes, range }, picture, window) {
  const table = codesOf(window, range);
  const step = window.width / LAST_LEVEL / (range.high - range.low) * LAST_CODE;
  // Half a step is what this picture does not tell; the rest, what one that was finer did not.
  const half = 0.6 * step + 1;
  for (let index = 0; index < codes.length; index += 1) {
    const level = picture[index];
    const code = table[level];
    const away = codes[index] - code;
    // Black may be any value below the window, and white any above it.
    if ((away > half && level < LAST_LEVEL) || (away < -half && level > 0)) codes[index] = code;
  }
}

/** @param {GreyWindow} window @param {Range} range @returns {Uint16Array} the code of each grey level */
function codesOf(window, { low, high }) {
  const { low: black } = rangeOf(window);
  const code = (level) => (black + window.width * level / LAST_LEVEL - low) / (high - low) * LAST_CODE;
  return Uint16Array.from({ length: LAST_LEVEL + 1 }, (_, level) => Math.min(LAST_CODE, Math.max(0, Math.round(code(level)))));
}

/**
 * How well a picture through a narrow window and one through a wide window fit together, in grey levels of the wide one.
 *
 * @param {Uint8Array} narrow @param {GreyWindow} window @param {Uint8Array} wide @param {GreyWindow} wideWindow
 * @param {boolean} smallestIsWhite of both pictures; windows are in stored values here
 * @returns {number} mean difference; 0 where nothing can be compared
 */
export function misfit(narrow, window, wide, wideWindow, smallestIsWhite) {
  const sign = smallestIsWhite ? -1 : 1;
  let sum = 0;
  let count = 0;
  const stride = Math.max(1, Math.floor(narrow.length / 20_000));
  for (let index = 0; index < narrow.length; index += stride) {
    const level = narrow[index];
    if (level === 0 || level === LAST_LEVEL) continue;
    const value = window.centre + sign * window.width * (level / LAST_LEVEL - 0.5);
    const expected = LAST_LEVEL * (0.5 + sign * (value - wideWindow.centre) / wideWindow.width);
    sum += Math.abs(Math.min(LAST_LEVEL, Math.max(0, expected)) - wide[index]);
    count += 1;
  }
  return count === 0 ? 0 : sum / count;
}

/**
 * Placement of a film in a viewport. Positions and sizes of viewports are in pixels of the screen, those of films in their own.
 *
 * @typedef {{width: number, height: number}} Size
 * @typedef {{kind: 'fit' | 'actual', by: number}} Zoom relative to the whole film in view, or pixels of the screen for one of the film
 * @typedef {{zoom: Zoom, centre: {x: number, y: number}, turn: number, mirrored: boolean}} Placement `centre`: the point of the film in the
 *   middle of the viewport, in fractions of it as it is seen; `turn`: quarters clockwise, after mirroring left and right
 * @typedef {[number, number, number, number, number, number]} Matrix as `setTransform` takes it
 */

const LARGEST = 32;
/** Smallest, as a share of the film that is whole in view. */
const SMALLEST = 0.5;

/** @returns {Placement} */
export function wholeFilm() {
  return { zoom: { kind: 'fit', by: 1 }, centre: { x: 0.5, y: 0.5 }, turn: 0, mirrored: false };
}

/** @param {Size} film @param {number} turn @returns {Size} as it is seen */
export function seenSize({ width, height }, turn) {
  return turn % 2 === 0 ? { width, height } : { width: height, height: width };
}

/** @param {Size} film @param {number} turn @param {Size} box @returns {number} pixels of the screen for one of the film, all of which is in view */
export function fittingScale(film, turn, box) {
  const seen = seenSize(film, turn);
  return Math.min(box.width / seen.width, box.height / seen.height);
}

/** @param {Placement} placement @param {Size} film @param {Size} box @returns {number} pixels of the screen for one of the film */
export function scaleOf({ zoom, turn }, film, box) {
  return zoom.kind === 'actual' ? zoom.by : zoom.by * fittingScale(film, turn, box);
}

/** @param {Placement} placement @param {Size} film @param {Size} box @returns {Matrix} from pixels of the film to those of the viewport */
export function matrixOf(placement, film, box) {
  const scale = scaleOf(placement, film, box);
  const seen = seenSize(film, placement.turn);
  const [cos, sin] = [[1, 0], [0, 1], [-1, 0], [0, -1]][placement.turn];
  const side = placement.mirrored ? -1 : 1;
  const [a, b, c, d] = [scale * cos * side, scale * sin * side, -scale * sin, scale * cos];
  const x = box.width / 2 - scale * (placement.centre.x - 0.5) * seen.width - (a * film.width + c * film.height) / 2;
  const y = box.height / 2 - scale * (placement.centre.y - 0.5) * seen.height - (b * film.width + d * film.height) / 2;
  // On whole pixels, so that a film at its own size is not smoothed.
  return [a, b, c, d, Math.round(x), Math.round(y)];
}

/** @param {Matrix} matrix @param {{x: number, y: number}} point of a viewport @returns {{x: number, y: number}} of the film */
export function filmPoint([a, b, c, d, e, f], { x, y }) {
  const determinant = a * d - b * c;
  return { x: (d * (x - e) - c * (y - f)) / determinant, y: (a * (y - f) - b * (x - e)) / determinant };
}

/**
 * @param {Placement} placement @param {Size} film @param {Size} box @param {number} factor
 * @param {{x: number, y: number}} [still] the point of the viewport that stays; by default its middle
 * @returns {Placement}
 */
export function zoomed(placement, film, box, factor, still = { x: box.width / 2, y: box.height / 2 }) {
  const before = scaleOf(placement, film, box);
  const fitting = fittingScale(film, placement.turn, box);
  const after = Math.min(Math.max(LARGEST, fitting), Math.max(Math.min(1, fitting) * SMALLEST, before * factor));
  const seen = seenSize(film, placement.turn);
  const change = 1 / before - 1 / after;
  return {
    ...placement,
    zoom: { ...placement.zoom, by: placement.zoom.by * after / before },
    centre: inside({
      x: placement.centre.x + (still.x - box.width / 2) * change / seen.width,
      y: placement.centre.y + (still.y - box.height / 2) * change / seen.height,
    }),
  };
}

/** @param {Placement} placement @param {Size} film @param {Size} box @param {number} x @param {number} y how far the film moves @returns {Placement} */
export function moved(placement, film, box, x, y) {
  const scale = scaleOf(placement, film, box);
  const seen = seenSize(film, placement.turn);
  return { ...placement, centre: inside({ x: placement.centre.x - x / scale / seen.width, y: placement.centre.y - y / scale / seen.height }) };
}

/** @param {Placement} placement @returns {Placement} left and right exchanged as it is seen */
export function mirrored({ centre, turn, mirrored: before, ...rest }) {
  return { ...rest, turn: (4 - turn) % 4, mirrored: !before, centre: { x: 1 - centre.x, y: centre.y } };
}

/** @param {Placement} placement @returns {Placement} a quarter further clockwise */
export function turned({ centre, turn, ...rest }) {
  return { ...rest, turn: (turn + 1) % 4, centre: { x: 1 - centre.y, y: centre.x } };
}

const OPPOSITE = { L: 'R', R: 'L', A: 'P', P: 'A', H: 'F', F: 'H' };

/**
 * The directions of the patient at the edges of a film as it is seen.
 *
 * @param {unknown} orientation such as `L\F`: where its rows and its columns lead (PS3.3, C.7.6.1.1.1)
 * @param {{turn: number, mirrored: boolean}} placement
 * @returns {[string, string, string, string] | null} top, right, bottom, left; null: unknown
 */
export function edgeLetters(orientation, { turn, mirrored: isMirrored }) {
  const parts = typeof orientation === 'string' ? orientation.toUpperCase().split('\\') : [];
  if (parts.length !== 2 || !parts.every((part) => /^[LRAPHF]{1,3}$/.test(part))) return null;
  const [right, bottom] = parts;
  const opposite = (letters) => [...letters].map((letter) => OPPOSITE[letter]).join('');
  const sides = isMirrored ? [right, opposite(right)] : [opposite(right), right];
  const edges = [opposite(bottom), sides[1], bottom, sides[0]];
  return /** @type {[string, string, string, string]} */ (edges.map((_, edge) => edges[(edge + 4 - turn) % 4]));
}

/** A part of what is in view is always of the film. @param {{x: number, y: number}} point */
function inside({ x, y }) {
  return { x: Math.min(1, Math.max(0, x)), y: Math.min(1, Math.max(0, y)) };
}

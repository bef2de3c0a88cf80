/**
 * The films on the light table in the fragment of an address, which no browser sends to a server: `#layout=2&active=1&film=COLLECTION/ID&film=`.
 * A viewport without a film has an empty entry. Of patients it has no more than the ids of their images.
 */

/**
 * @typedef {{collection: string, id: string}} FilmName
 * @typedef {1 | 2 | 4} Layout
 * @typedef {{layout: Layout, active: number, films: Array<FilmName | null>}} Table
 */

/** @type {Layout[]} */
export const LAYOUTS = [1, 2, 4];

/** @param {Table} table @returns {string} */
export function fragmentOf({ layout, active, films }) {
  const parts = new URLSearchParams({ layout: String(layout), active: String(active) });
  for (const film of films.slice(0, layout)) parts.append('film', film === null ? '' : `${film.collection}/${film.id}`);
  return `#${parts}`;
}

/** @param {string} fragment @returns {Table} what can be read of it; the rest is as at first */
export function tableOf(fragment) {
  const parts = new URLSearchParams(fragment.replace(/^#/, ''));
  const films = parts.getAll('film').map(filmName);
  const layout = LAYOUTS.find((one) => String(one) === parts.get('layout')) ?? LAYOUTS.find((one) => one >= films.length) ?? 4;
  const active = Number(parts.get('active'));
  return { layout, active: Number.isInteger(active) && active >= 0 && active < layout ? active : 0, films: Array.from({ length: layout }, (_, index) => films[index] ?? null) };
}

/** @param {string} text @returns {FilmName | null} */
function filmName(text) {
  const slash = text.indexOf('/');
  return slash > 0 && slash < text.length - 1 ? { collection: text.slice(0, slash), id: text.slice(slash + 1) } : null;
}

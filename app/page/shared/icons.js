/** The page's line icons, drawn on a 24 x 24 grid. */

const SVG = 'http://www.w3.org/2000/svg';

const PATHS = {
  search: 'M10.5 4a6.5 6.5 0 1 1 0 13a6.5 6.5 0 0 1 0-13zM15.3 15.3L20 20',
  image: 'M5 5h14a1 1 0 0 1 1 1v12a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1V6a1 1 0 0 1 1-1zM4.5 17l5-5 3.5 3.5 2.5-2.5 4.3 4.2M15.2 9.2h.01',
  filter: 'M4 7h16M7 12h10M10 17h4',
  edit: 'M4.5 19.5l1-4L16 5l3 3L8.5 18.5zM13.5 7.5l3 3',
  close: 'M6 6l12 12M18 6L6 18',
  like: 'M12 4a8 8 0 1 1 0 16a8 8 0 0 1 0-16zM12 8.5v7M8.5 12h7',
  unlike: 'M12 4a8 8 0 1 1 0 16a8 8 0 0 1 0-16zM8.5 12h7',
  right: 'M7.5 10.5v9H4.5v-9zM7.5 10.5l3.8-6.6a2 2 0 0 1 2 2.1v3.8h5a1.6 1.6 0 0 1 1.6 1.9l-1.2 6.3a1.8 1.8 0 0 1-1.8 1.5H7.5',
  wrong: 'M7.5 13.5v-9H4.5v9zM7.5 13.5l3.8 6.6a2 2 0 0 0 2-2.1v-3.8h5a1.6 1.6 0 0 0 1.6-1.9l-1.2-6.3a1.8 1.8 0 0 0-1.8-1.5H7.5',
  previous: 'M14.5 6l-6 6 6 6',
  next: 'M9.5 6l6 6-6 6',
  zoomIn: 'M10.5 4a6.5 6.5 0 1 1 0 13a6.5 6.5 0 0 1 0-13zM15.3 15.3L20 20M7.8 10.5h5.4M10.5 7.8v5.4',
  zoomOut: 'M10.5 4a6.5 6.5 0 1 1 0 13a6.5 6.5 0 0 1 0-13zM15.3 15.3L20 20M7.8 10.5h5.4',
  fit: 'M4 9V5a1 1 0 0 1 1-1h4M15 4h4a1 1 0 0 1 1 1v4M20 15v4a1 1 0 0 1-1 1h-4M9 20H5a1 1 0 0 1-1-1v-4',
  levels: 'M4 8h8.5M17.5 8H20M15 5.5v5M4 16h2.5M11.5 16H20M9 13.5v5',
  invert: 'M12 4a8 8 0 1 1 0 16a8 8 0 0 1 0-16zM12 4v16M12 8h5.6M12 12h8M12 16h5.6',
  region: 'M4 8V5a1 1 0 0 1 1-1h3M16 4h3a1 1 0 0 1 1 1v3M20 16v3a1 1 0 0 1-1 1h-3M8 20H5a1 1 0 0 1-1-1v-3M9 9h6v6H9z',
  matched: 'M12 5a7 7 0 1 1 0 14a7 7 0 0 1 0-14zM12 9a3 3 0 1 1 0 6a3 3 0 0 1 0-6zM12 2.5v3M12 18.5v3M2.5 12h3M18.5 12h3',
  open: 'M13 5h6v6M19 5l-8 8M17 14v4a1 1 0 0 1-1 1H6a1 1 0 0 1-1-1V8a1 1 0 0 1 1-1h4',
  warning: 'M12 4.5l8.5 15h-17zM12 10v4.5M12 17h.01',
  nothing: 'M10.5 4a6.5 6.5 0 1 1 0 13a6.5 6.5 0 0 1 0-13zM15.3 15.3L20 20M8.4 8.4l4.2 4.2M12.6 8.4l-4.2 4.2',
  scissors: 'M6 8.5a2.5 2.5 0 1 1 0-.01zM6 20.5a2.5 2.5 0 1 1 0-.01zM8 8l11 8M8 17l11-8',
  done: 'M5 12.5l4.5 4.5L19 7.5',
  link: 'M10 14a4 4 0 0 0 6 .4l3-3a4.2 4.2 0 0 0-6-6l-1.5 1.5M14 10a4 4 0 0 0-6-.4l-3 3a4.2 4.2 0 0 0 6 6l1.5-1.5',
  bookmark: 'M7 4.5h10a1 1 0 0 1 1 1v14l-6-4.5-6 4.5v-14a1 1 0 0 1 1-1z',
  key: 'M8 11.5a4 4 0 1 1 0 8a4 4 0 0 1 0-8zM11 12.5L19.5 4M15.5 8l3 3',
  keyboard: 'M4 7h16a1 1 0 0 1 1 1v8a1 1 0 0 1-1 1H4a1 1 0 0 1-1-1V8a1 1 0 0 1 1-1zM7 10.5h.01M11 10.5h.01M15 10.5h.01M8 14h8',
};

/**
 * An icon, hidden from assistive technology: the control around it carries the name.
 *
 * @param {keyof typeof PATHS} name
 * @returns {SVGSVGElement}
 */
export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  const path = document.createElementNS(SVG, 'path');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('aria-hidden', 'true');
  svg.setAttribute('class', 'icon');
  path.setAttribute('d', PATHS[name]);
  svg.append(path);
  return svg;
}

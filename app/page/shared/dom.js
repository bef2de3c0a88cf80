/** Building DOM nodes. Data only ever becomes text nodes, properties or attributes; never markup. */

/**
 * Make an element.
 *
 * Properties: `class`, `data` (a map of data attributes), `on` (a map of event listeners), DOM properties by
 * name when the element has them, attributes otherwise. A value of null, undefined or false leaves it out.
 *
 * @param {string} tag
 * @param {Record<string, any>} [properties]
 * @param {...(Node | string | number | null | undefined | false)} children
 * @returns {HTMLElement & Record<string, any>}
 */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'class') element.className = value;
    else if (name === 'data') Object.assign(element.dataset, value);
    else if (name === 'on') listen(element, value);
    else if (name in element && !name.startsWith('aria-') && name !== 'list') element[name] = value;
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(...present(children));
  return element;
}

/**
 * Replace all children of a node.
 *
 * @param {Element | ShadowRoot} parent
 * @param {...(Node | string | number | null | undefined | false)} children
 */
export function fill(parent, ...children) {
  parent.replaceChildren(...present(children));
}

/** @param {Element} element @param {Record<string, (event: any) => void>} listeners */
function listen(element, listeners) {
  for (const [type, listener] of Object.entries(listeners)) element.addEventListener(type, listener);
}

/** @param {Array<Node | string | number | null | undefined | false>} children */
function present(children) {
  return children
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}

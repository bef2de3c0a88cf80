/** Keys that work wherever the focus is, outside of inputs and dialogs. */

/**
 * @param {HTMLElement | Document} target
 * @param {{search: () => void, filters: () => void, words: () => void, help: () => void}} actions
 * @returns {() => void} stops it
 */
export function takeKeys(target, actions) {
  const keys = { '/': actions.search, f: actions.filters, w: actions.words, '?': actions.help };
  const listener = (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };
  target.addEventListener('keydown', listener);
  return () => target.removeEventListener('keydown', listener);
}

/** @param {Event} event */
function isTyping(event) {
  const [origin] = event.composedPath();
  return origin instanceof Element && origin.closest('input:not([type=checkbox]), select, textarea, dialog, [contenteditable]') !== null;
}

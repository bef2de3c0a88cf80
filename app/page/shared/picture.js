/** Pictures of the service in image elements, which send no token by themselves. */

/** The address that each element is to show. @type {WeakMap<HTMLImageElement, string>} */
const requested = new WeakMap();

/**
 * Show a picture; where the session has a token it is fetched with it.
 *
 * @param {HTMLImageElement} element @param {string} address @param {import('./session.js').Session} session
 */
export async function showPicture(element, address, session) {
  requested.set(element, address);
  // The reader's own picture is in the page already.
  if (session.token === null || address.startsWith('blob:')) {
    element.src = address;
    return;
  }
  try {
    const answer = await session.fetch(address, { headers: { Accept: 'image/*' } });
    const own = URL.createObjectURL(await answer.blob());
    if (requested.get(element) !== address) {
      URL.revokeObjectURL(own);
      return;
    }
    element.addEventListener('load', () => URL.revokeObjectURL(own), { once: true });
    element.src = own;
  } catch {
    // As where the browser itself finds no picture.
    if (requested.get(element) === address) element.dispatchEvent(new Event('error'));
  }
}

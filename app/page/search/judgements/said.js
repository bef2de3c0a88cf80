/** What the reader said of hits, kept by the tab: it is there when the page is loaded again, until the tab is closed. */

const NAME = 'recoquest-judgements';
const MOST = 500;

export class Said {
  /** @type {Map<string, boolean | null>} */
  #said = new Map(stored());

  /** @param {string} key @returns {boolean | null} */
  get(key) {
    return this.#said.get(key) ?? null;
  }

  /** @param {string} key @param {boolean | null} relevant */
  set(key, relevant) {
    // The latest stand last.
    this.#said.delete(key);
    if (relevant !== null) this.#said.set(key, relevant);
    try {
      sessionStorage.setItem(NAME, JSON.stringify([...this.#said].slice(-MOST)));
    } catch {
      // In a frame that may store nothing, it is kept as long as the page is open.
    }
  }
}

/** @returns {Array<[string, boolean]>} */
function stored() {
  try {
    return JSON.parse(sessionStorage.getItem(NAME) ?? '[]');
  } catch {
    return [];
  }
}

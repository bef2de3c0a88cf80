/** Judgements of hits in this tab: they survive reloads until the tab is closed. */

const NAME = 'recoquest-judgements';
const MOST = 500;

export class StoredJudgements {
  /** @type {Map<string, boolean | null>} */
  #judged = new Map(stored());

  /** @param {string} key @returns {boolean | null} */
  get(key) {
    return this.#judged.get(key) ?? null;
  }

  /** @param {string} key @param {boolean | null} relevant */
  set(key, relevant) {
    // The latest are last.
    this.#judged.delete(key);
    if (relevant !== null) this.#judged.set(key, relevant);
    try {
      sessionStorage.setItem(NAME, JSON.stringify([...this.#judged].slice(-MOST)));
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

/** The admin key of a service that has one: kept by this tab until it is closed, and sent with every request. */

const NAME = 'recoquest-admin-key';

export class AdminKey {
  get isGiven() {
    return sessionStorage.getItem(NAME) !== null;
  }

  /** @returns {Record<string, string>} */
  get headers() {
    const key = sessionStorage.getItem(NAME);
    if (key === null) return {};
    // A header takes bytes, one a character; the service compares those of UTF-8.
    return { Authorization: `Bearer ${String.fromCharCode(...new TextEncoder().encode(key))}` };
  }

  /** @param {string} key */
  give(key) {
    sessionStorage.setItem(NAME, key);
  }

  forget() {
    sessionStorage.removeItem(NAME);
  }
}

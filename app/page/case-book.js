/** `<case-book>` for pages of other sites, under an address that stays. */

export { CaseBook } from './cases/case-book.js';

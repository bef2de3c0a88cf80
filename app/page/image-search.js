/** `<image-search>` for pages of other sites, under an address that stays. */

export { ImageSearch } from './search/image-search.js';

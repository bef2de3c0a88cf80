/** The texts of the search. */

import { speaker } from '../shared/words.js';

export const { say, parts } = speaker('search');

/** The texts of the search. */

import { speaker } from '../shared/words.js';
import { de } from '../words/de/search.js';
import { en } from '../words/en/search.js';

export const { say, parts } = speaker({ en, de });

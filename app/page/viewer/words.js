/** The texts of the page for reading. */

import { speaker } from '../shared/words.js';
import { de } from '../words/de/viewer.js';
import { en } from '../words/en/viewer.js';

export const { say, parts } = speaker({ en, de });

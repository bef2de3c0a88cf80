/** The texts of the case book. */

import { speaker } from '../shared/words.js';
import { de } from '../words/de/cases.js';
import { en } from '../words/en/cases.js';

export const { say } = speaker({ en, de });

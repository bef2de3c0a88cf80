/** The texts of the operator's page. */

import { speaker } from '../shared/words.js';
import { de } from '../words/de/operate.js';
import { en } from '../words/en/operate.js';

export const { say, parts, term } = speaker({ en, de });

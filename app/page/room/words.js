/** Texts of the reading room in the reader's language. */

import { speaker } from '../shared/words.js';
import { de } from '../words/de/room.js';
import { en } from '../words/en/room.js';

export const { say } = speaker({ en, de });

/** The texts of the page for reading. */

import { speaker } from '../shared/words.js';

export const { say, parts } = speaker('viewer');

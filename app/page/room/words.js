/** Texts of the reading room in the reader's language. */

import { speaker } from '../shared/words.js';

export const { say } = speaker('room');

/** The texts of the case book. */

import { speaker } from '../shared/words.js';

export const { say } = speaker('cases');

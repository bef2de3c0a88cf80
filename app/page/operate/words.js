/** The texts of the operator's page. */

import { speaker } from '../shared/words.js';

export const { say, parts, term } = speaker('operate');

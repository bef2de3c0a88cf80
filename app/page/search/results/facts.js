/** What is known of a film and of whose it is, in the line of its tile. */

import { dayText } from '../../shared/words.js';
import { say } from '../words.js';

const OLDEST = 90;

/**
 * @param {import('../api.js').Hit} hit @param {ReadonlySet<string>} hidden fields that are not shown
 * @returns {string[]} date, view and side, age, sex, where the metadata has them
 */
export function factsOf({ metadata }, hidden) {
  const known = (field) => (hidden.has(field) ? undefined : metadata[field]);
  const [date, age, sex] = ['date', 'age', 'sex'].map(known);
  const view = ['view', 'laterality'].map(known).filter((value) => typeof value === 'string' && value).join(' ');
  return [
    typeof date === 'string' && /^\d{4}-\d{2}-\d{2}/.test(date) && dayText(date.slice(0, 10)),
    view,
    typeof age === 'number' && say('hit.years', { age: age >= OLDEST ? `${OLDEST}+` : age }),
    ['M', 'F', 'O'].includes(sex) && say(`sex.${sex}`),
  ].filter(Boolean);
}

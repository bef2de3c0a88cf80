/** Names that the service has in one form for all: fields, findings, states, kinds of scores; as a reader calls them. */

import { de } from '../words/de/terms.js';
import { en } from '../words/en/terms.js';
import { dayText, speaker } from './words.js';

const { say, term } = speaker({ en, de });
const OLDEST = 90;

/** @param {string} name @returns {string} the name of a field; data sets bring some of their own */
export function fieldTitle(name) {
  return term(`field.${name}`, name.replaceAll('_', ' '));
}

/** @param {string} name @returns {string} the name of a finding */
export function findingTitle(name) {
  return term(`finding.${name}`, name);
}

/** @param {'present' | 'uncertain' | 'absent'} state @returns {string} what texts say of a finding */
export function stateTitle(state) {
  return say(`state.${state}`);
}

/** @param {string} kind @returns {string} the name of a kind of score */
export function kindTitle(kind) {
  return term(`kind.${kind}`, kind.replaceAll('_', ' '));
}

/** @param {unknown} value @returns {string} a value of metadata */
export function valueText(value) {
  return typeof value === 'boolean' ? say(`value.${value}`) : String(value);
}

/**
 * @param {Record<string, unknown>} metadata @param {ReadonlySet<string>} hidden fields that are not shown
 * @returns {string[]} date, view and side of a film, and age and sex of its patient, where the metadata has them
 */
export function filmFacts(metadata, hidden) {
  const known = (field) => (hidden.has(field) ? undefined : metadata[field]);
  const [date, age, sex] = ['date', 'age', 'sex'].map(known);
  const view = ['view', 'laterality'].map(known).filter((value) => typeof value === 'string' && value).join(' ');
  return [
    typeof date === 'string' && /^\d{4}-\d{2}-\d{2}/.test(date) && dayText(date.slice(0, 10)),
    view,
    typeof age === 'number' && say('age.years', { age: age >= OLDEST ? `${OLDEST}+` : age }),
    ['M', 'F', 'O'].includes(sex) && say(`sex.${sex}`),
  ].filter(Boolean);
}

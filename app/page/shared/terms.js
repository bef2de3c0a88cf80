/** Names that the service has in one form for all: fields, findings, states, kinds of scores; as a reader calls them. */

import { de } from '../words/de/terms.js';
import { en } from '../words/en/terms.js';
import { speaker } from './words.js';

const { say, term } = speaker({ en, de });

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

/** A filter as the page edits it (one clause a field, one state a finding), and as the service reads it (a JSON expression). */

/**
 * @typedef {{eq: string | number | boolean} | {any_of: Array<string | number>}
 *   | {gte?: number | string, lte?: number | string, gt?: number | string, lt?: number | string}} Clause bounds that are texts are dates
 * @typedef {'present' | 'uncertain' | 'absent'} State what texts say of a finding
 * @typedef {{clauses: Record<string, Clause>, findings: Record<string, State>, other: object[]}} Filter `other` holds parts that the panel cannot edit
 */

import { valueText } from '../../shared/terms.js';
import { dayText, numberText } from '../../shared/words.js';
import { say } from '../words.js';

const CLAUSE_KEYS = new Set(['field', 'eq', 'any_of', 'gte', 'lte', 'gt', 'lt']);

/** @type {State[]} */
export const STATES = ['present', 'uncertain', 'absent'];

/** @returns {Filter} */
export function noFilter() {
  return { clauses: {}, findings: {}, other: [] };
}

/**
 * @param {Filter} filter
 * @returns {object | null} what the service takes as `filter`
 */
export function expressionOf(filter) {
  const parts = [
    ...Object.entries(filter.clauses).map(([field, clause]) => ({ field, ...clause })),
    ...Object.entries(filter.findings).map(([finding, state]) => ({ finding, state })),
    ...filter.other,
  ];
  if (parts.length === 0) return null;
  return parts.length === 1 ? parts[0] : { and: parts };
}

/**
 * @param {object} expression
 * @returns {Filter}
 */
export function filterOf(expression) {
  const filter = noFilter();
  const parts = Array.isArray(expression.and) && Object.keys(expression).length === 1 ? expression.and : [expression];
  for (const part of parts) {
    if (isClause(part) && !Object.hasOwn(filter.clauses, part.field)) {
      const { field, ...clause } = part;
      filter.clauses[field] = clause;
    } else if (isFinding(part) && !Object.hasOwn(filter.findings, part.finding)) filter.findings[part.finding] = part.state;
    else filter.other.push(part);
  }
  return filter;
}

/** @param {string} text JSON of an address @returns {Filter | null} null where it is broken */
export function parsedFilter(text) {
  try {
    const expression = JSON.parse(text);
    return expression !== null && typeof expression === 'object' && !Array.isArray(expression) ? filterOf(expression) : null;
  } catch {
    return null;
  }
}

/** @param {Filter} filter @param {string} field @param {Clause | null} clause @returns {Filter} a changed copy */
export function withClause(filter, field, clause) {
  const clauses = { ...filter.clauses };
  if (clause) clauses[field] = clause;
  else delete clauses[field];
  return { ...filter, clauses };
}

/** @param {Filter} filter @param {string} finding @param {State | null} state @returns {Filter} a changed copy */
export function withFinding(filter, finding, state) {
  const findings = { ...filter.findings };
  if (state) findings[finding] = state;
  else delete findings[finding];
  return { ...filter, findings };
}

/** @param {Filter} filter @returns {number} */
export function clauseCount({ clauses, findings, other }) {
  return Object.keys(clauses).length + Object.keys(findings).length + other.length;
}

/** @param {Clause} clause @returns {string} the clause in words */
export function clauseText(clause) {
  if ('eq' in clause) return valueText(clause.eq);
  if ('any_of' in clause) return clause.any_of.map(valueText).join(say('joined.or'));
  const low = clause.gte ?? clause.gt;
  const high = clause.lte ?? clause.lt;
  if (low !== undefined && high !== undefined) return say('filter.between', { low: boundText(low), high: boundText(high) });
  return low !== undefined ? say('filter.from', { low: boundText(low) }) : say('filter.upTo', { high: boundText(high) });
}

/** @param {number | string} bound */
function boundText(bound) {
  return typeof bound === 'number' ? numberText(bound, { useGrouping: false, maximumFractionDigits: 12 }) : dayText(bound);
}

/** @param {any} part */
function isClause(part) {
  return (
    part !== null && typeof part === 'object' && typeof part.field === 'string' && part.field !== '__proto__' &&
    Object.keys(part).length > 1 && Object.keys(part).every((key) => CLAUSE_KEYS.has(key)) && isWhole(part)
  );
}

/** @param {any} part */
function isFinding(part) {
  return part !== null && typeof part === 'object' && Object.keys(part).length === 2 && typeof part.finding === 'string' && part.finding !== '__proto__' &&
    STATES.includes(part.state);
}

/** Whether the panel can show it: lists are lists, and bounds are numbers or texts. The service judges the rest. @param {any} part */
function isWhole({ field, eq, any_of: anyOf, ...bounds }) {
  if (eq !== undefined) return anyOf === undefined && Object.keys(bounds).length === 0 && typeof eq !== 'object';
  if (anyOf !== undefined) return Array.isArray(anyOf) && Object.keys(bounds).length === 0;
  return Object.values(bounds).every((bound) => ['number', 'string'].includes(typeof bound));
}

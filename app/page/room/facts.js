/** Facts about a film, as they are written on it. */

import { dayOf } from '../shared/terms.js';
import { say } from './words.js';

/**
 * @typedef {{id: string, group?: string | null, metadata: Record<string, unknown>}} Described
 * @typedef {{field: 'patient' | 'group', value: string}} Patient how a film's patient is identified
 */

const DAY_MS = 86_400_000;

/** @param {Described} film @returns {Patient | null} null: unknown */
export function patientOf({ group, metadata }) {
  if (typeof metadata.patient === 'string') return { field: 'patient', value: metadata.patient };
  return typeof group === 'string' ? { field: 'group', value: group } : null;
}

/** @param {Described} a @param {Described} b @returns {boolean} whether both certainly show the same patient */
export function isSamePatient(a, b) {
  const [one, other] = [patientOf(a), patientOf(b)];
  return one !== null && other !== null && one.field === other.field && one.value === other.value;
}

/** @param {Described} film @param {ReadonlySet<string>} hidden fields that are not shown @returns {string[]} such as DX, PA */
export function viewOf({ metadata }, hidden) {
  return ['modality', 'body_part', 'view'].filter((field) => !hidden.has(field) && metadata[field]).map((field) => String(metadata[field]));
}

/**
 * Dates of two patients may have been shifted differently: days between them would say nothing.
 *
 * @param {Described} film @param {Described} from @returns {number | null} days from one film to another of the same patient; null: unknown
 */
export function daysFrom(film, from) {
  const [day, first] = [dayOf(film.metadata), dayOf(from.metadata)];
  if (day === null || first === null || !isSamePatient(film, from)) return null;
  return Math.round((Date.parse(day) - Date.parse(first)) / DAY_MS);
}

/** @param {number} days @returns {string} */
export function daysText(days) {
  if (days === 0) return say('sameDay');
  return say(days > 0 ? 'daysLater' : 'daysBefore', { days: Math.abs(days) });
}

/** The controls of one field in the panel of filters: boxes for its values, or two bounds of numbers or dates. */

import { fill, h } from '../../shared/dom.js';
import { fieldTitle, valueText } from '../../shared/terms.js';
import { say } from '../words.js';

/**
 * @typedef {import('../api.js').Field} Field
 * @typedef {import('../api.js').FieldValue} FieldValue
 * @typedef {import('./filter.js').Clause} Clause
 */

const MOST_BOXES = 8;
const PAUSE_MS = 250;
/** Numbers that write days: 20210312. */
const FIRST_DAY = 19000101;
const LAST_DAY = 22991231;

/** @param {Field} field @returns {boolean} whether it is chosen from by two bounds */
export function isRange(field) {
  return field.kinds.length === 1 && (field.kinds[0] === 'number' || field.kinds[0] === 'date');
}

/** @param {Field} field */
function isOfDays({ kinds, minimum, maximum }) {
  return kinds[0] === 'date' || (minimum >= FIRST_DAY && maximum <= LAST_DAY && [minimum, maximum].every(isDayNumber));
}

/**
 * @param {Field} field @param {Clause | null} clause @param {(clause: Clause | null) => void} change
 * @returns {Node[]}
 */
export function rangeControl(field, clause, change) {
  const form = isOfDays(field) ? (field.kinds[0] === 'date' ? DATES : DAY_NUMBERS) : NUMBERS;
  const input = (name, label, end, value, hint) => h('input', { class: 'number', type: form.type, step: 'any', inputMode: form.type === 'number' ? 'decimal' : null,
    value: value === undefined ? '' : form.shown(value, end), placeholder: String(hint), 'aria-label': label,
    ...(form.type === 'date' && { min: form.shown(field.minimum, 'low'), max: form.shown(field.maximum, 'high') }),
    data: { key: `${field.name} ${name}` }, on: { input: () => change(read()) } });
  const title = fieldTitle(field.name);
  const low = input('from', say('filter.lowest', { field: title }), 'low', clause?.gte ?? clause?.gt, field.minimum);
  const high = input('to', say('filter.highest', { field: title }), 'high', clause?.lte ?? clause?.lt, field.maximum);
  const read = () => {
    const bounds = {};
    if (low.value !== '') bounds.gte = form.read(low);
    if (high.value !== '') bounds.lte = form.read(high);
    return Object.keys(bounds).length > 0 ? bounds : null;
  };
  return [h('div', { class: form.type === 'date' ? 'range dates' : 'range' }, low, h('span', { 'aria-hidden': 'true' }, '\u2013'), high)];
}

const NUMBERS = { type: 'number', shown: (value) => value, read: (input) => input.valueAsNumber };
const DATES = { type: 'date', shown: (value, end) => dayOf(String(value), end), read: (input) => input.value };
const DAY_NUMBERS = {
  type: 'date',
  shown: (value) => String(value).replace(/^(\d{4})(\d{2})(\d{2})$/, '$1-$2-$3'),
  read: (input) => Number(input.value.replaceAll('-', '')),
};

/** @param {number | string | null} value */
function isDayNumber(value) {
  const day = DAY_NUMBERS.shown(value);
  return /^\d{4}-\d{2}-\d{2}$/.test(day) && !Number.isNaN(Date.parse(day));
}

/** @param {string} date in full or in part @param {'low' | 'high'} end @returns {string} its first or last day */
function dayOf(date, end) {
  const [year, month, day] = (date.match(/^(\d{4})-?(\d{2})-?(\d{2})?/) ?? []).slice(1);
  if (year === undefined) return '';
  const last = new Date(Date.UTC(Number(year), Number(month), 0)).getUTCDate();
  return `${year}-${month}-${day ?? (end === 'low' ? '01' : last)}`;
}

/**
 * @param {Field} field @param {Clause | null} clause @param {(clause: Clause | null) => void} change
 * @param {(containing: string) => Promise<FieldValue[]>} find gives values by a part of them
 * @returns {Node[]}
 */
export function choiceControl(field, clause, change, find) {
  const chosen = new Set(clause?.any_of ?? (clause && 'eq' in clause ? [clause.eq] : []));
  const choose = (value, on) => {
    if (on) chosen.add(value);
    else chosen.delete(value);
    const values = [...chosen];
    change(values.length === 0 ? null : values.length === 1 ? { eq: values[0] } : { any_of: values });
  };
  const listed = field.values.map(({ value }) => value);
  const unlisted = [...chosen].filter((value) => !listed.includes(value)).map((value) => ({ value, count: null }));
  // Values that are unique to an image are only found by a part of them.
  const most = field.values.some(({ count }) => count > 1) ? MOST_BOXES : 0;
  const shown = field.values.filter(({ value }, index) => index < most || chosen.has(value));
  const rest = field.values.filter((entry) => !shown.includes(entry));
  const box = ({ value, count }) => checkbox(field.name, value, count, chosen.has(value), choose);
  const boxes = [...shown, ...unlisted].map(box);
  if (field.distinct > field.values.length) return [...boxes, finder(field, chosen, box, find)];
  return rest.length > 0 ? [...boxes, moreValues(field, rest, choose)] : boxes;
}

/** @param {string} field @param {any} value @param {number | null} count @param {boolean} checked @param {(value: any, on: boolean) => void} choose */
function checkbox(field, value, count, checked, choose) {
  return h('label', { class: 'check', title: valueText(value) },
    h('input', { type: 'checkbox', checked, data: { key: `${field}=${value}` }, on: { change: (event) => choose(value, event.target.checked) } }),
    h('span', { class: 'check-name' }, valueText(value)),
    h('span', { class: 'check-count' }, count ?? ''));
}

/** @param {Field} field @param {FieldValue[]} rest @param {(value: any, on: boolean) => void} choose */
function moreValues(field, rest, choose) {
  const option = ({ value, count }, index) => h('option', { value: String(index) }, `${valueText(value)} (${count})`);
  return h('select', { class: 'select', 'aria-label': say('filter.moreValuesOf', { field: fieldTitle(field.name) }), data: { key: `${field.name}+` },
    on: { change: (event) => choose(rest[Number(event.target.value)].value, true) } },
    h('option', { value: '', selected: true, disabled: true }, say('filter.moreValues', { count: rest.length })), ...rest.map(option));
}

/** A box that finds values which are too many for a list. @param {Field} field @param {Set<any>} chosen @param {(entry: FieldValue) => Node} box @param {(containing: string) => Promise<FieldValue[]>} find */
function finder(field, chosen, box, find) {
  const results = h('div', { class: 'matching-values', role: 'status' });
  let timer = 0;
  let latest = '';
  const look = async () => {
    latest = input.value.trim();
    const text = latest;
    if (text === '') {
      fill(results);
      return;
    }
    const values = await find(text).catch(() => null);
    if (text !== latest) return;
    const fresh = values?.filter(({ value }) => !chosen.has(value));
    fill(results, ...(fresh?.length ? fresh.map(box) : [h('p', { class: 'quiet small' }, values === null ? say('filter.unreadable') : say('filter.noValue'))]));
  };
  const input = h('input', { class: 'number', type: 'text', autocomplete: 'off', spellcheck: false, enterKeyHint: 'search', placeholder: say('filter.findAmong', { count: field.distinct }),
    'aria-label': say('filter.findValue', { field: fieldTitle(field.name) }), data: { key: `${field.name}?` },
    on: { input: () => {
      clearTimeout(timer);
      timer = setTimeout(look, PAUSE_MS);
    } } });
  return h('div', { class: 'finder' }, input, results);
}

/** What texts have to say of findings: one list of states a finding, with the images that say so. */

import { countText } from '../../shared/count-text.js';
import { h } from '../../shared/dom.js';
import { findingTitle, stateTitle } from '../../shared/terms.js';
import { say } from '../words.js';
import { STATES } from './filter.js';

/** @typedef {{finding: string, present: number, uncertain: number, absent: number}} CountedFinding */

const MOST_SHOWN = 8;

/**
 * @param {CountedFinding[]} counted findings of the collection, those of most images first
 * @param {Record<string, import('./filter.js').State>} chosen those of the filter
 * @param {(finding: string, state: import('./filter.js').State | null) => void} change
 * @returns {Node[]}
 */
export function findingControls(counted, chosen, change) {
  const names = [...new Set([...Object.keys(chosen), ...counted.map(({ finding }) => finding)])];
  const most = Math.max(MOST_SHOWN, Object.keys(chosen).length);
  const lines = names.map((finding) => h('label', { class: 'finding-line' }, h('span', { class: 'check-name', title: findingTitle(finding) }, findingTitle(finding)),
    h('select', { class: 'select', data: { key: `finding ${finding}`, finding }, on: { change: (event) => change(finding, event.target.value || null) } },
      h('option', { value: '' }, say('filter.anyState')), ...STATES.map((state) => h('option', { value: state, selected: state === chosen[finding] }, stateTitle(state))))));
  const rest = lines.slice(most);
  const controls = [...lines.slice(0, most), ...(rest.length > 0 ? [h('details', {}, h('summary', {}, say('filter.moreFindings', { count: rest.length })), ...rest)] : [])];
  if (counted.length > 0) showFindingCounts(controls, counted);
  return controls;
}

/** Show how many images say each thing. @param {Element[]} controls @param {CountedFinding[]} counted */
export function showFindingCounts(controls, counted) {
  const counts = new Map(counted.map((one) => [one.finding, one]));
  for (const select of controls.flatMap((control) => [...control.querySelectorAll('select')])) {
    for (const option of [...select.options].slice(1)) option.textContent = `${stateTitle(option.value)} (${countText(counts.get(select.dataset.finding)?.[option.value] ?? 0)})`;
  }
}

/** What texts have to say of findings: one list of states a finding. */

import { h } from '../../shared/dom.js';
import { STATES } from './filter.js';

/**
 * @param {Record<string, import('./filter.js').State>} findings those of the filter
 * @param {(finding: string, state: import('./filter.js').State | null) => void} change
 * @returns {Node[]}
 */
export function findingControls(findings, change) {
  return Object.entries(findings).map(([finding, chosen]) => h('label', { class: 'finding-line' }, h('span', { class: 'check-name', title: finding }, finding),
    h('select', { class: 'select', data: { key: `finding ${finding}` }, on: { change: (event) => change(finding, event.target.value || null) } },
      h('option', { value: '' }, 'any'), ...STATES.map((state) => h('option', { value: state, selected: state === chosen }, state)))));
}

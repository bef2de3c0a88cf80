/** The viewer in a frame: what is opened in it, and what it tells of its active image. */

import { fill, h } from '../shared/dom.js';
import { dayText } from '../shared/words.js';
import { say } from './words.js';

/** @typedef {import('./cases-api.js').ActiveImage} ActiveImage */

const ACTIVE = 'recoquest.active-image';

export class ViewerFrame {
  /** Patients whose images the frame has shown since it was opened, by name and id. @type {Set<string>} */
  #patients = new Set();

  /** @param {URL} base @param {(image: ActiveImage | null) => void} active called with the image of the active viewport; null: none is shown yet */
  constructor(base, active) {
    this.base = base;
    this.active = active;
    this.element = frameOf(null);
    this.identity = h('div', { class: 'identity', role: 'status', 'aria-label': say('frame.patient') });
    window.addEventListener('message', ({ source, origin, data }) => {
      if (source !== this.element.contentWindow || origin !== location.origin || data?.type !== ACTIVE) return;
      this.#showIdentity(data.image, data.patients);
      active(data.image);
    });
  }

  /**
   * Open studies of one patient, side by side where there are two.
   *
   * @param {string[]} studies @param {{series?: string | null, sop?: string | null}} [first] the image to begin with
   */
  open(studies, { series = null, sop = null } = {}) {
    const parameters = new URLSearchParams({ StudyInstanceUIDs: studies.join(',') });
    if (series !== null) parameters.set('initialSeriesInstanceUID', series);
    if (sop !== null) parameters.set('initialSopInstanceUID', sop);
    if (studies.length > 1) parameters.set('hangingprotocolId', '@recoquest/side-by-side');
    const address = new URL('viewer', this.base);
    // OHIF splits the list at commas as they are.
    address.search = parameters.toString().replaceAll('%2C', ',');
    this.#renew(address.href);
  }

  /** Show nothing. */
  close() {
    this.#renew(null);
  }

  /**
   * A frame of its own for each opening: the former film goes at once, late messages of its viewer have no source any more, and Back in the
   * browser does not bring it below the name of another patient.
   *
   * @param {string | null} address
   */
  #renew(address) {
    this.#patients.clear();
    fill(this.identity);
    const former = this.element;
    this.element = frameOf(address);
    former.replaceWith(this.element);
    this.active(null);
  }

  /** @param {ActiveImage} image the active one @param {ActiveImage['patient'][]} patients those of all viewports */
  #showIdentity({ patient, date }, patients) {
    const whose = nameAndId(patient);
    for (const shown of [patient, ...patients]) this.#patients.add(nameAndId(shown));
    // Collections know patients by hashes: should two be taken for one, the reader sees both names.
    const several = this.#patients.size > 1 && h('span', { class: 'two-patients', role: 'alert' }, say('frame.severalPatients', { patients: [...this.#patients].join(', ') }));
    fill(this.identity, h('strong', {}, whose), date && h('span', {}, dateText(date)), several);
  }
}

/** @param {string | null} src */
function frameOf(src) {
  return h('iframe', { class: 'frame', title: say('frame.title'), allow: 'cross-origin-isolated; fullscreen', src });
}

/** @param {ActiveImage['patient']} patient */
function nameAndId({ name, id }) {
  return `${name || say('frame.noName')} (${id || say('frame.noId')})`;
}

/** @param {string} date as DICOM has it @returns {string} */
function dateText(date) {
  return /^\d{8}$/.test(date) ? dayText(`${date.slice(0, 4)}-${date.slice(4, 6)}-${date.slice(6)}`) : date;
}

/** Taking images by drag and drop, and from the clipboard. */

import { say } from '../words.js';

/** Media types of DICOM files, and of files with an unknown extension. */
const OTHER_TYPES = ['application/dicom', ''];

/**
 * @param {HTMLElement | Document} target
 * @param {{over: (isOver: boolean) => void, image: (image: File) => void, refused: (reason: string) => void}} actions
 * @returns {() => void} stops it
 */
export function takeImages(target, actions) {
  const listening = new AbortController();
  const options = { signal: listening.signal };
  let depth = 0;
  const leave = () => {
    depth = 0;
    actions.over(false);
  };
  target.addEventListener('dragenter', (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    depth += 1;
    actions.over(true);
  }, options);
  target.addEventListener('dragover', (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = 'copy';
  }, options);
  target.addEventListener('dragleave', (event) => {
    if (!carriesFiles(event)) return;
    depth -= 1;
    if (depth <= 0) leave();
  }, options);
  target.addEventListener('drop', (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    leave();
    take(event.dataTransfer.files, actions);
  }, options);
  target.addEventListener('paste', (event) => {
    const files = event.clipboardData?.files ?? [];
    if (files.length === 0) return;
    event.preventDefault();
    take(files, actions);
  }, options);
  return () => listening.abort();
}

/** @param {DragEvent} event */
function carriesFiles(event) {
  return event.dataTransfer?.types.includes('Files') ?? false;
}

/** @param {FileList} files @param {Parameters<typeof takeImages>[1]} actions */
function take(files, actions) {
  const image = [...files].find((file) => file.type.startsWith('image/') || OTHER_TYPES.includes(file.type));
  if (image) actions.image(image);
  else actions.refused(say('field.notAnImage', { name: files[0].name }));
}

/** Many images in requests of bounded size, and the outcome of all of them. */

import type { Upload, Uploaded } from "./types.js";

/** How far an upload is, after each request; totals are there where the images are an array. */
export interface UploadProgress {
  /** Images that were answered. */
  images: number;
  totalImages?: number;
  /** Bytes of their files. */
  sent: number;
  total?: number;
}

// Of one request; the service takes 64 files and, unless it is set otherwise, 24 MiB.
const MAX_FILES = 64;
const MAX_BYTES = 20 * 1024 * 1024;

/** Group images for requests: as many as 64, together of 20 MiB, without an id twice. */
export function* batches(uploads: Iterable<Upload>): Generator<Upload[], void, undefined> {
  let batch: Upload[] = [];
  let ids = new Set<string>();
  let held = 0;
  for (const upload of uploads) {
    const { file, ...record } = upload;
    // A character is four bytes at most.
    const size = file.size + 4 * JSON.stringify(record).length;
    if (batch.length > 0 && (batch.length === MAX_FILES || held + size > MAX_BYTES || ids.has(upload.id))) {
      yield batch;
      [batch, ids, held] = [[], new Set(), 0];
    }
    batch.push(upload);
    ids.add(upload.id);
    held += size;
  }
  // A request without images gets the problem that the service tells of it.
  yield batch;
}

/** Return the bytes of the files of images. */
export function bytesOf(uploads: readonly Upload[]): number {
  return uploads.reduce((sum, { file }) => sum + file.size, 0);
}

/** Return the outcome of several requests as that of one. */
export function merged(before: Uploaded | undefined, next: Uploaded): Uploaded {
  if (before === undefined) return next;
  const counts = { ...next.counts };
  for (const name of Object.keys(counts) as (keyof typeof counts)[]) counts[name] += before.counts[name];
  return {
    ...next,
    written: before.written + next.written,
    refused: before.refused + next.refused,
    results: [...before.results, ...next.results],
    counts,
  };
}

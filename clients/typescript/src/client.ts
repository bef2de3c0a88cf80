/** The client of recoquest: a thin face over the operations of its OpenAPI document. */

import createClient, { type Client } from "openapi-fetch";

import { ProblemError } from "./problem.js";
import type { paths } from "./schema.js";
import { checked, events, type Fetch, pause, retrying } from "./transport.js";
import type {
  Alias,
  CallOptions,
  ClientOptions,
  Collection,
  Embeddings,
  EmbeddingsQuery,
  ImageChanges,
  ImageInfo,
  ImageList,
  ImagesWanted,
  Job,
  JobPage,
  JobsWanted,
  Judged,
  LinkWanted,
  NewCollection,
  NewJob,
  NewJudgement,
  PictureLink,
  ProblemDocument,
  Removed,
  RemovedAlias,
  SearchOptions,
  SearchPage,
  SearchQuery,
  SimilarStudies,
  SimilarityMap,
  StudiesWanted,
  Upload,
  UploadOptions,
  Uploaded,
  WriteOptions,
  WrittenImage,
} from "./types.js";
import { batches, bytesOf, merged } from "./uploads.js";

export { type FieldError, ProblemError } from "./problem.js";
export type { components, operations, paths } from "./schema.js";
export type * from "./types.js";
export type { UploadProgress } from "./uploads.js";

const RETRIES = 3;
const RECONNECT_S = 1;
const ENDED: readonly Job["state"][] = ["done", "failed", "cancelled"];

/** A client of one service. Every call throws a {@link ProblemError} where the service answers with one. */
export class RecoquestClient {
  /** Every operation of the OpenAPI document by its path; throws as the other methods do. */
  readonly api: Client<paths>;
  readonly #base: URL;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #retries: number;
  readonly #send: Fetch;

  constructor(options: ClientOptions) {
    const send = options.fetch ?? ((request: Request) => fetch(request));
    this.#base = new URL(options.baseUrl);
    this.#headers = options.key === undefined ? {} : { Authorization: `Bearer ${options.key}` };
    this.#retries = options.retries ?? RETRIES;
    const again = retrying(send, this.#retries);
    this.#send = async (request) => checked(await again(request));
    this.api = createClient<paths>({ baseUrl: options.baseUrl, headers: this.#headers, fetch: this.#send });
  }

  /** The collections that the caller may read. */
  async collections(options: CallOptions = {}): Promise<Collection[]> {
    return (await answer(this.api.GET("/v1/collections", passed(options)))).collections;
  }

  /** Begin a collection without images. */
  createCollection(body: NewCollection, options: CallOptions = {}): Promise<Collection> {
    return answer(this.api.POST("/v1/collections", { body, ...passed(options) }));
  }

  /** Give a collection another name; roles of keys and aliases follow. */
  renameCollection(collection: string, name: string, options: CallOptions = {}): Promise<Collection> {
    const params = { path: { collection } };
    return answer(
      this.api.PATCH("/v1/collections/{collection}", { params, body: { name }, ...passed(options) }),
    );
  }

  /** The aliases of the collections that the caller may read. */
  async aliases(options: CallOptions = {}): Promise<Alias[]> {
    return (await answer(this.api.GET("/v1/aliases", passed(options)))).aliases;
  }

  /** Let a name answer for a collection, from one moment on. */
  putAlias(alias: string, collection: string, options: WriteOptions = {}): Promise<Alias> {
    const params = { path: { alias }, header: condition(options) };
    return answer(this.api.PUT("/v1/aliases/{alias}", { params, body: { collection }, ...passed(options) }));
  }

  /** Remove an alias; its collection stays. */
  deleteAlias(alias: string, options: WriteOptions = {}): Promise<RemovedAlias> {
    const params = { path: { alias }, header: condition(options) };
    return answer(this.api.DELETE("/v1/aliases/{alias}", { params, ...passed(options) }));
  }

  /** Vectors of texts and of images in base64, which go into a search as `like` with a `vector`. */
  embed(body: EmbeddingsQuery, options: CallOptions = {}): Promise<Embeddings> {
    return answer(this.api.POST("/v1/embeddings", { body, ...passed(options) }));
  }

  /** One page of hits, for a text, for examples (`like`, `unlike`), for picture files, or all together. */
  search(collection: string, query: SearchQuery, options: SearchOptions = {}): Promise<SearchPage> {
    const params = { path: { collection } };
    const body = bodyOf(query, options);
    const asked = this.api.POST("/v1/collections/{collection}/search", { params, body, ...passed(options) });
    // openapi-fetch takes pairs of numbers for lists.
    return answer(asked) as Promise<SearchPage>;
  }

  /** How well each part of an image fits a search: a grid of cosines, row by row; the model needs regions. */
  similarityMap(
    collection: string,
    imageId: string,
    query: SearchQuery,
    options: SearchOptions = {},
  ): Promise<SimilarityMap> {
    const params = { path: { collection, image_id: imageId } };
    const path = "/v1/collections/{collection}/images/{image_id}/similarity-map";
    const asked = this.api.POST(path, { params, body: bodyOf(query, options), ...passed(options) });
    // The other form of the answer is a picture, which comes where `Accept` asks for one.
    return answer(asked) as Promise<SimilarityMap>;
  }

  /** The pages of a search, one after the other, until the last or until the caller stops. */
  searchPages(
    collection: string,
    query: SearchQuery,
    options: SearchOptions = {},
  ): AsyncGenerator<SearchPage, void, undefined> {
    const first = typeof query.cursor === "string" ? query.cursor : null;
    return pages((cursor) => this.search(collection, { ...query, cursor: cursor ?? true }, options), first);
  }

  /** The pages of a list of images, one after the other; docs/guides/search.md explains what can be wanted. */
  imagePages(
    collection: string,
    wanted: ImagesWanted = {},
    options: CallOptions = {},
  ): AsyncGenerator<ImageList, void, undefined> {
    const { filter, ...others } = wanted;
    return pages((cursor) => {
      const query = { ...others, cursor, filter: filter === undefined ? null : JSON.stringify(filter) };
      const params = { path: { collection }, query };
      return answer(
        this.api.GET("/v1/collections/{collection}/images", { params, ...passed(options) }),
      );
    });
  }

  /** Studies like a study of a viewer, or like one image of it, most similar first. */
  similarStudies(study: string, wanted: StudiesWanted = {}, options: CallOptions = {}): Promise<SimilarStudies> {
    const { collection, sop, filter, frame, ...others } = wanted;
    const query = { ...others, filter: filter === undefined ? null : JSON.stringify(filter) };
    const ofImage = { ...query, frame: frame ?? null };
    if (collection === undefined) {
      if (sop === undefined) {
        const params = { path: { study }, query };
        return answer(this.api.GET("/v1/studies/{study}/similar", { params, ...passed(options) }));
      }
      const params = { path: { study, sop }, query: ofImage };
      return answer(this.api.GET("/v1/studies/{study}/instances/{sop}/similar", { params, ...passed(options) }));
    }
    const path = "/v1/collections/{collection}/studies/{study}" as const;
    if (sop === undefined) {
      const params = { path: { collection, study }, query };
      return answer(this.api.GET(`${path}/similar`, { params, ...passed(options) }));
    }
    const params = { path: { collection, study, sop }, query: ofImage };
    return answer(this.api.GET(`${path}/instances/{sop}/similar`, { params, ...passed(options) }));
  }

  /** All that is known of one image. */
  image(collection: string, id: string, options: CallOptions = {}): Promise<ImageInfo> {
    const params = { path: { collection, image_id: id } };
    return answer(
      this.api.GET("/v1/collections/{collection}/images/{image_id}", { params, ...passed(options) }),
    );
  }

  /** A link that shows one picture without a key, until it ends. */
  link(collection: string, id: string, body: LinkWanted = {}, options: CallOptions = {}): Promise<PictureLink> {
    const params = { path: { collection, image_id: id } };
    return answer(
      this.api.POST("/v1/collections/{collection}/images/{image_id}/link", { params, body, ...passed(options) }),
    );
  }

  /** The file behind one of an answer's `links`; in a page without a key, the link is an address of its own. */
  async file(link: string, options: CallOptions = {}): Promise<Blob> {
    const url = new URL(link, this.#base);
    if (url.origin !== this.#base.origin) throw new TypeError(`${link} is not an address of ${this.#base.origin}.`);
    const response = await this.#send(new Request(url, { headers: this.#headers, ...passed(options) }));
    return response.blob();
  }

  /**
   * Put images in, one or many: those that cannot be used are refused in `results`, and the others written.
   *
   * They go in requests of up to 64 images and 20 MiB, one after the other; images of a request that was answered
   * stay where a later one fails. Sent again, they are unchanged.
   */
  async upload(collection: string, uploads: Iterable<Upload>, options: UploadOptions = {}): Promise<Uploaded> {
    const all = Array.isArray(uploads) ? (uploads as readonly Upload[]) : undefined;
    const totals = all === undefined ? {} : { totalImages: all.length, total: bytesOf(all) };
    let outcome: Uploaded | undefined;
    let sent = 0;
    for (const batch of batches(uploads)) {
      outcome = merged(outcome, await this.#uploadBatch(collection, batch, options));
      sent += bytesOf(batch);
      options.onProgress?.({ images: outcome.results.length, sent, ...totals });
    }
    if (outcome === undefined) throw new TypeError("There are no images to send.");
    return outcome;
  }

  #uploadBatch(collection: string, uploads: readonly Upload[], options: CallOptions): Promise<Uploaded> {
    const form = new FormData();
    const records = [];
    for (const { file, ...record } of uploads) {
      form.append("image", file);
      records.push(record);
    }
    form.append("records", JSON.stringify(records));
    const params = { path: { collection } };
    return answer(
      this.api.POST("/v1/collections/{collection}/images", { params, body: sent(form), ...passed(options) }),
    );
  }

  /** Change the record of an image; omitted fields stay. */
  updateImage(
    collection: string,
    id: string,
    body: ImageChanges,
    options: WriteOptions = {},
  ): Promise<WrittenImage> {
    const params = { path: { collection, image_id: id }, header: condition(options) };
    return answer(
      this.api.PATCH("/v1/collections/{collection}/images/{image_id}", { params, body, ...passed(options) }),
    );
  }

  /** Remove an image with all that is said of it. */
  deleteImage(collection: string, id: string, options: WriteOptions = {}): Promise<Removed> {
    const params = { path: { collection, image_id: id }, header: condition(options) };
    return answer(
      this.api.DELETE("/v1/collections/{collection}/images/{image_id}", { params, ...passed(options) }),
    );
  }

  /** Say whether a hit is relevant to its query; `relevant: null` takes the judgement back. */
  judge(collection: string, body: NewJudgement, options: CallOptions = {}): Promise<Judged> {
    const params = { path: { collection } };
    return answer(
      this.api.POST("/v1/collections/{collection}/feedback", { params, body, ...passed(options) }),
    );
  }

  /** Give a job to the workers. */
  startJob(body: NewJob, options: CallOptions = {}): Promise<Job> {
    return answer(this.api.POST("/v1/jobs", { body, ...passed(options) }));
  }

  /** A job as it is now. */
  job(job: number, options: CallOptions = {}): Promise<Job> {
    return answer(this.api.GET("/v1/jobs/{job}", { params: { path: { job } }, ...passed(options) }));
  }

  /** The pages of jobs, the latest first. */
  jobPages(wanted: JobsWanted = {}, options: CallOptions = {}): AsyncGenerator<JobPage, void, undefined> {
    return pages((cursor) =>
      answer(this.api.GET("/v1/jobs", { params: { query: { ...wanted, cursor } }, ...passed(options) })),
    );
  }

  /** Ask a job to end before its time. */
  cancelJob(job: number, options: CallOptions = {}): Promise<Job> {
    return answer(this.api.POST("/v1/jobs/{job}/cancel", { params: { path: { job } }, ...passed(options) }));
  }

  /**
   * A job now and after every change, until it has ended; a stream that breaks is opened again.
   *
   * A {@link ProblemError} is thrown where the service ends the stream, as the key was revoked; the job goes on.
   */
  async *watchJob(job: number, options: CallOptions = {}): AsyncGenerator<Job, void, undefined> {
    let before: string | undefined;
    for (let lost = 0; lost <= this.#retries; lost++) {
      if (lost > 0) await pause(RECONNECT_S, options.signal);
      try {
        for await (const data of this.#jobEvents(job, options)) {
          if (data === before) continue;
          before = data;
          lost = 0;
          const entry = JSON.parse(data) as Job;
          yield entry;
          if (ENDED.includes(entry.state)) return;
        }
      } catch (error) {
        if (!(error instanceof TypeError) || options.signal?.aborted) throw error;
      }
    }
    throw new Error(`The stream of job ${job} ended before the job: ask for it with job(${job}).`);
  }

  async *#jobEvents(job: number, options: CallOptions): AsyncGenerator<string, void, undefined> {
    const params = { path: { job } };
    const { response } = await this.api.GET("/v1/jobs/{job}/events", {
      params,
      parseAs: "stream",
      ...passed(options),
    });
    if (response.body === null) return;
    for await (const { name, data } of events(response.body)) {
      // Why the service ends the stream before the job, as of a key that was revoked.
      if (name === "problem") throw new ProblemError(JSON.parse(data) as Partial<ProblemDocument>, response);
      if (name === "job") yield data;
    }
  }
}

async function* pages<Page extends { next_cursor?: string | null }>(
  ask: (cursor: string | null) => Promise<Page>,
  first: string | null = null,
): AsyncGenerator<Page, void, undefined> {
  for (let cursor: string | null | undefined = first; cursor !== undefined; ) {
    const page: Page = await ask(cursor);
    yield page;
    cursor = page.next_cursor ?? undefined;
  }
}

/** Return the data of an answer, which is there: without it, an error was thrown. */
async function answer<Data>(asked: Promise<{ data?: Data }>): Promise<NonNullable<Data>> {
  const { data } = await asked;
  if (data === undefined || data === null) throw new Error("The service's answer is empty.");
  return data;
}

function passed(options: CallOptions): { signal: AbortSignal | null } {
  return { signal: options.signal ?? null };
}

function condition(options: WriteOptions): { "If-Match"?: string } {
  return options.ifMatch === undefined ? {} : { "If-Match": options.ifMatch };
}

/** A search as it is sent: a form where files go with it. */
function bodyOf(query: SearchQuery, options: SearchOptions): SearchQuery {
  const { images = [], unlikeImages = [] } = options;
  if (images.length + unlikeImages.length === 0) return query;
  const form = new FormData();
  form.append("query", JSON.stringify(query));
  for (const file of images) form.append("image", file);
  for (const file of unlikeImages) form.append("unlike_image", file);
  return sent(form);
}

/** A form in place of a body: the document has no type for one. */
function sent(form: FormData): never {
  return form as never;
}

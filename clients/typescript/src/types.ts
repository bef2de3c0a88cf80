/** Types of the calls of the client and of their answers, from the OpenAPI document. */

import type { components, operations } from "./schema.js";
import type { Fetch } from "./transport.js";
import type { UploadProgress } from "./uploads.js";

type Schemas = components["schemas"];
export type ProblemDocument = Schemas["Problem"];
export type Alias = Schemas["Alias"];
export type Collection = Schemas["CollectionSummary"];
export type Embeddings = Schemas["Embeddings"];
export type EmbeddingsQuery = Schemas["EmbeddingsQuery"];
export type Hit = Schemas["SearchHit"];
export type ImageInfo = Schemas["ImageInfo"];
export type ImageChanges = Schemas["ImageChanges"];
export type ImageList = Schemas["ImageList"];
export type Job = Schemas["JobEntry"];
export type JobPage = Schemas["Jobs"];
export type Judged = Schemas["Judged"];
export type LinkWanted = Schemas["LinkWanted"];
export type NewCollection = Schemas["NewCollection"];
export type NewJob = operations["create_job"]["requestBody"]["content"]["application/json"];
export type NewJudgement = Schemas["NewJudgement"];
export type PictureLink = Schemas["PictureLink"];
export type Removed = Schemas["Removed"];
export type RemovedAlias = Schemas["RemovedAlias"];
export type SearchPage = Schemas["SearchResponse"];
export type SearchQuery = Schemas["SearchQuery"];
export type SimilarityMap = Schemas["SimilarityMap"];
export type SimilarStudies = Schemas["SimilarResponse"];
export type Uploaded = Schemas["WritesAnswer"];
export type WrittenImage = Schemas["WriteAnswer"];
/** A condition on metadata or built-in fields, as in docs/guides/search.md. */
export type Filter = NonNullable<SearchQuery["filter"]>;

type Query<Operation extends keyof operations> = NonNullable<operations[Operation]["parameters"]["query"]>;
export type ImagesWanted = Omit<Query<"list_images">, "cursor" | "filter"> & { filter?: Filter };
export type StudiesWanted = Omit<Query<"find_like_image_anywhere">, "filter"> & {
  /** Collection to search; without it, the first one by name that holds the study. */
  collection?: string;
  /** SOP Instance UID of an image; without it, the whole study. */
  sop?: string;
  filter?: Filter;
};
export type JobsWanted = Omit<Query<"list_jobs">, "cursor">;

/** An image file, its id, and its record. */
export type Upload = { id: string; file: Blob } & {
  [Field in keyof Schemas["ImageWords"]]?: NonNullable<Schemas["ImageWords"][Field]>;
};

export interface ClientOptions {
  /** Address of the service, such as `https://images.example.org`; in a page of its own: `location.origin`. */
  baseUrl: string;
  /** API key, or token of an identity provider; without one, the browser's session with the service. */
  key?: string;
  /** How many times a request that got no answer, or was put off, is sent again. */
  retries?: number;
  /** Instead of the global `fetch`. */
  fetch?: Fetch;
}

export interface CallOptions {
  /** Ends the call: `AbortSignal.timeout(10_000)`, or that of an `AbortController`. */
  signal?: AbortSignal;
}

export interface SearchOptions extends CallOptions {
  /** Picture files to find more of. */
  images?: readonly Blob[];
  /** Picture files to find less of. */
  unlikeImages?: readonly Blob[];
}

export interface UploadOptions extends CallOptions {
  /** Told after each request how far the upload is. */
  onProgress?: (progress: UploadProgress) => void;
}

export interface WriteOptions extends CallOptions {
  /** ETag of the image or alias that the caller knows; another one is left as it is, and a ProblemError is thrown. */
  ifMatch?: string;
}

/** Errors that the service, or a proxy before it, answers with. */

import type { components } from "./schema.js";

type ProblemDocument = components["schemas"]["Problem"];
export type FieldError = components["schemas"]["FieldError"];

/** An answer with an error status; a problem document (RFC 9457) where the service itself answered. */
export class ProblemError extends Error {
  override readonly name = "ProblemError";
  /** Stable name of the kind of problem, such as `urn:recoquest:unknown-image`. */
  readonly type: string;
  readonly title: string;
  readonly status: number;
  /** Explanation of this error, and a remedy. */
  readonly detail: string;
  /** Path on the service of what the problem means and what to do; null where a proxy answered. */
  readonly help: string | null;
  /** Finds the request in the service's log. */
  readonly requestId: string | null;
  /** Errors of single fields of the request. */
  readonly errors: readonly FieldError[];
  /** Seconds after which the request may be sent again. */
  readonly retryAfter: number | null;

  constructor(document: Partial<ProblemDocument>, response: Response) {
    const status = document.status ?? response.status;
    const title = document.title ?? (response.statusText || `Status ${status}`);
    const detail = document.detail ?? `The server answered ${status} without a problem document.`;
    super(`${title}: ${detail}`);
    this.type = document.type ?? "about:blank";
    this.title = title;
    this.status = status;
    this.detail = detail;
    this.help = document.help ?? null;
    this.requestId = document.request_id ?? response.headers.get("X-Request-ID");
    this.errors = document.errors ?? [];
    this.retryAfter = retryAfter(response);
  }

  /** Read the error that a response tells of. */
  static async of(response: Response): Promise<ProblemError> {
    const type = response.headers.get("Content-Type") ?? "";
    if (!type.startsWith("application/problem+json")) return new ProblemError({}, response);
    try {
      return new ProblemError((await response.json()) as ProblemDocument, response);
    } catch (error) {
      if (error instanceof SyntaxError) return new ProblemError({}, response);
      throw error;
    }
  }
}

/** The seconds of `Retry-After`; null without any. The service sends seconds, proxies may send a date. */
export function retryAfter(response: Response): number | null {
  const value = response.headers.get("Retry-After");
  if (value === null || value.trim() === "") return null;
  const seconds = Number(value);
  if (Number.isFinite(seconds)) return Math.max(0, seconds);
  const date = Date.parse(value);
  return Number.isNaN(date) ? null : Math.max(0, (date - Date.now()) / 1000);
}

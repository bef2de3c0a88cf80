/** Requests that are sent again where nothing is done twice, and streams of events. */

import { ProblemError, retryAfter } from "./problem.js";

export type Fetch = (request: Request) => Promise<Response>;

const MAX_WAIT_S = 30;
const FIRST_WAIT_S = 0.5;
const BUSY: readonly number[] = [409, 429, 503];
const READS = /\/(search|search\/batch|count)$/;
const KEY = "Idempotency-Key";

/**
 * Send requests again that the service puts off by `Retry-After`, and those that a broken connection lost.
 *
 * A POST that begins something gets an `Idempotency-Key`, so that the service does it once. A lost PUT, PATCH
 * or DELETE is not sent again: it may have been done.
 *
 * @param retries - How many times a request is sent again.
 */
export function retrying(send: Fetch, retries: number): Fetch {
  return async (first) => {
    const request = named(first);
    for (let attempt = 0; ; attempt++) {
      const last = attempt >= retries;
      let wait = FIRST_WAIT_S * 2 ** attempt;
      try {
        // The body of a request can be read once.
        const response = await send(last ? request : request.clone());
        const asked = BUSY.includes(response.status) ? retryAfter(response) : null;
        if (last || asked === null || asked > MAX_WAIT_S) return response;
        await response.body?.cancel();
        wait = asked;
      } catch (error) {
        // `fetch` rejects with a TypeError where there was no answer.
        const isLost = error instanceof TypeError && ["GET", "POST"].includes(request.method);
        if (last || !isLost || request.signal.aborted) throw error;
      }
      await pause(wait, request.signal);
    }
  };
}

/** A server-sent event. */
export interface StreamEvent {
  name: string;
  data: string;
}

/** Read server-sent events that have data. */
export async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<StreamEvent, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let data: string[] = [];
  let event = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      // A CR at the end may be the first half of CR LF.
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (line.startsWith("data:")) data.push(line.slice("data:".length).replace(/^ /, ""));
        if (line.startsWith("event:")) event = line.slice("event:".length).trim();
        if (line !== "") continue;
        if (data.length > 0) yield { name: event, data: data.join("\n") };
        data = [];
        event = "";
      }
    }
  } finally {
    // The error of a broken stream is on its way already.
    await reader.cancel().catch(() => undefined);
  }
}

/** Wait, unless the signal ends it. */
export function pause(seconds: number, signal?: AbortSignal | null): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, seconds * 1000);
    if (signal?.aborted) abort();
    else signal?.addEventListener("abort", abort, { once: true });
  });
}

/** Raise the error that a response tells of. */
export async function checked(response: Response): Promise<Response> {
  if (!response.ok) throw await ProblemError.of(response);
  return response;
}

/** Give a POST that begins something a name that the service knows it by. */
function named(request: Request): Request {
  if (request.method === "POST" && !READS.test(new URL(request.url).pathname) && !request.headers.has(KEY)) {
    request.headers.set(KEY, newName());
  }
  return request;
}

function newName(): string {
  // Browsers have it on pages by HTTPS only, and Node.js from version 19.
  const known = globalThis.crypto as Partial<Crypto> | undefined;
  if (known?.randomUUID !== undefined) return known.randomUUID();
  return [0, 1, 2].map(() => Math.random().toString(36).slice(2)).join("-");
}

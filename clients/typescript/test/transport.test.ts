/** Answers of a server that is busy, broken or behind a proxy, over real connections. */

import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { ProblemError, RecoquestClient, type UploadProgress } from "recoquest";

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

interface Seen {
  method: string | undefined;
  key: string | undefined;
  authorization: string | undefined;
  body: string;
}

/** Serve one answer a request, in turn, the last for all others; tell the work what was sent. */
async function against(answers: Answer[], work: (baseUrl: string, seen: Seen[]) => Promise<void>): Promise<void> {
  const seen: Seen[] = [];
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (piece: Buffer) => (body += piece.toString()));
    request.on("end", () => {
      const { "idempotency-key": key, authorization } = request.headers;
      const answer = answers[Math.min(seen.length, answers.length - 1)];
      seen.push({ method: request.method, key: key?.toString(), authorization, body });
      answer?.(request, response);
    });
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  try {
    await work(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

const json =
  (status: number, body: unknown, headers: Record<string, string> = {}): Answer =>
  (_, response) => {
    response.writeHead(status, { "Content-Type": "application/json", ...headers }).end(JSON.stringify(body));
  };

const problem = (status: number, headers: Record<string, string> = {}): Answer =>
  json(
    status,
    { type: "urn:recoquest:busy", title: "Busy", status, detail: "Later.", help: "/docs", errors: [] },
    { "Content-Type": "application/problem+json", ...headers },
  );

const broken: Answer = (request) => void request.socket.destroy();

const stream =
  (...pieces: string[]): Answer =>
  async (_, response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    for (const piece of pieces) {
      response.write(piece);
      await new Promise((later) => setTimeout(later, 2));
    }
    response.end();
  };

const refused = async (asked: Promise<unknown>): Promise<ProblemError> => {
  try {
    await asked;
  } catch (error) {
    if (error instanceof ProblemError) return error;
    throw error;
  }
  throw new assert.AssertionError({ message: "nothing was refused" });
};

test("a POST that is put off and then lost is sent again, whole and by the same name", async () => {
  await against([problem(429, { "Retry-After": "0" }), broken, json(202, { id: 7 })], async (baseUrl, seen) => {
    const client = new RecoquestClient({ baseUrl, key: "secret" });
    assert.equal((await client.startJob({ kind: "tidy" })).id, 7);
    await client.startJob({ kind: "tidy" });
    assert.deepEqual(seen.map((one) => one.body), Array(4).fill('{"kind":"tidy"}'));
    assert.deepEqual(seen.map((one) => one.authorization), Array(4).fill("Bearer secret"));
    const [one, two, three, other] = seen.map((each) => each.key);
    assert.ok(one);
    assert.deepEqual([two, three], [one, one]);
    assert.notEqual(other, one);
  });
});

test("a search has no name, and no key is sent where there is none", async () => {
  await against([broken, json(200, { hits: [], next_cursor: null })], async (baseUrl, seen) => {
    await new RecoquestClient({ baseUrl }).search("scenes", { text: "a dog" });
    assert.deepEqual(seen.map((one) => [one.key, one.authorization]), Array(2).fill([undefined, undefined]));
  });
});

test("requests are sent again only so often, and not after a wait of minutes", async () => {
  await against([problem(503, { "Retry-After": "0" })], async (baseUrl, seen) => {
    const error = await refused(new RecoquestClient({ baseUrl, retries: 2 }).collections());
    assert.equal(error.retryAfter, 0);
    assert.equal(seen.length, 3);
  });
  await against([problem(503, { "Retry-After": "600" })], async (baseUrl, seen) => {
    const error = await refused(new RecoquestClient({ baseUrl }).collections());
    assert.equal(error.retryAfter, 600);
    assert.equal(seen.length, 1);
  });
  await against([problem(409)], async (baseUrl, seen) => {
    await refused(new RecoquestClient({ baseUrl }).collections());
    assert.equal(seen.length, 1);
  });
});

test("a removal that was lost is not sent again, for it may have been done", async () => {
  await against([broken], async (baseUrl, seen) => {
    await assert.rejects(new RecoquestClient({ baseUrl }).deleteImage("scenes", "one"), TypeError);
    assert.equal(seen.length, 1);
  });
});

test("a wait ends with the caller's signal", async () => {
  await against([problem(503, { "Retry-After": "25" })], async (baseUrl, seen) => {
    const signal = AbortSignal.timeout(200);
    const asked = new RecoquestClient({ baseUrl }).collections({ signal });
    await assert.rejects(asked, { name: "TimeoutError" });
    assert.equal(seen.length, 1);
  });
});

test("an error of a proxy is an error with a status", async () => {
  const page: Answer = (_, response) => void response.writeHead(502, { "Content-Type": "text/html" }).end("<h1>");
  const cut: Answer = (_, response) =>
    void response.writeHead(500, { "Content-Type": "application/problem+json" }).end('{"type": ');
  for (const [answer, status] of [[page, 502], [cut, 500]] as const) {
    await against([answer], async (baseUrl) => {
      const error = await refused(new RecoquestClient({ baseUrl }).collections());
      assert.deepEqual([error.status, error.type, error.help], [status, "about:blank", null]);
      assert.match(error.message, new RegExp(String(status)));
    });
  }
});

const event = (state: string, end: string): string =>
  ["event: job", `data: {"id": 1,`, `data: "state": "${state}", "note": "\u00e9"}`, "", ""].join(end);

for (const [name, end] of [["LF", "\n"], ["CR LF", "\r\n"], ["CR", "\r"]] as const) {
  test(`events whose lines end by ${name} are read, cut anywhere`, async () => {
    const whole = `: ping${end}${end}${event("queued", end)}${event("done", end)}: end${end}`;
    const letters = whole.split("");
    for (const pieces of [[whole], letters]) {
      await against([stream(...pieces)], async (baseUrl, seen) => {
        const states = [];
        for await (const job of new RecoquestClient({ baseUrl }).watchJob(1)) states.push(job.state);
        assert.deepEqual(states, ["queued", "done"]);
        assert.equal(seen.length, 1);
      });
    }
  });
}

test("an event of another name is no job", async () => {
  const other = `event: note\ndata: {"status": 401}\n\n`;
  await against([stream(event("queued", "\n"), other), stream(event("done", "\n"))], async (baseUrl) => {
    const states = [];
    for await (const job of new RecoquestClient({ baseUrl }).watchJob(1)) states.push(job.state);
    assert.deepEqual(states, ["queued", "done"]);
  });
});

test("a problem in the events of a job is thrown as itself, and the stream is not opened again", async () => {
  const document = { type: "urn:recoquest:key-ended", title: "Ended", status: 401, detail: "It is revoked.", errors: [] };
  const told = `event: problem\ndata: ${JSON.stringify(document)}\n\n`;
  await against([stream(event("queued", "\n"), told)], async (baseUrl, seen) => {
    const states: string[] = [];
    const error = await refused(
      (async () => {
        for await (const job of new RecoquestClient({ baseUrl }).watchJob(1)) states.push(job.state);
      })(),
    );
    assert.deepEqual(states, ["queued"]);
    assert.deepEqual([error.type, error.status, error.detail], [document.type, 401, document.detail]);
    assert.equal(seen.length, 1);
  });
});

const records = (body: string): { id: string }[] => {
  const part = /name="records"\r\n\r\n([^\r]*)\r\n/.exec(body);
  assert.ok(part?.[1]);
  return JSON.parse(part[1]) as { id: string }[];
};

const written = (...ids: string[]): Answer =>
  json(200, {
    written: ids.length,
    refused: 0,
    results: ids.map((id) => ({ id, status: "created" })),
    counts: { received: ids.length, created: ids.length, replaced: 0, unchanged: 0, refused: 0 },
    written_to: { generation: 1, digest: "d" },
  });

test("many images go in requests of 64, and the outcome is of all", async () => {
  const ids = Array.from({ length: 130 }, (_, number) => `image-${number}`);
  const answers = [ids.slice(0, 64), ids.slice(64, 128), ids.slice(128)].map((some) => written(...some));
  await against(answers, async (baseUrl, seen) => {
    const told: UploadProgress[] = [];
    const uploads = ids.map((id) => ({ id, file: new Blob(["abc"]) }));
    const onProgress = (progress: UploadProgress) => void told.push(progress);
    const uploaded = await new RecoquestClient({ baseUrl }).upload("a", uploads, { onProgress });
    assert.deepEqual(seen.map(({ body }) => records(body).length), [64, 64, 2]);
    assert.deepEqual(seen.flatMap(({ body }) => records(body).map(({ id }) => id)), ids);
    assert.deepEqual(uploaded.results.map(({ id }) => id), ids);
    assert.deepEqual([uploaded.written, uploaded.counts.received, uploaded.counts.created], [130, 130, 130]);
    const totals = { totalImages: 130, total: 390 };
    assert.deepEqual(told, [
      { images: 64, sent: 192, ...totals },
      { images: 128, sent: 384, ...totals },
      { images: 130, sent: 390, ...totals },
    ]);
  });
});

test("large files and an id that comes twice begin another request", async () => {
  const large = new Blob([new Uint8Array(11 * 1024 * 1024)]);
  const small = new Blob(["abc"]);
  function* uploads() {
    yield { id: "a", file: large };
    yield { id: "b", file: large };
    yield { id: "c", file: small };
    yield { id: "c", file: small };
  }
  await against([written("a"), written("b", "c"), written("c")], async (baseUrl, seen) => {
    const told: UploadProgress[] = [];
    await new RecoquestClient({ baseUrl }).upload("a", uploads(), { onProgress: (one) => void told.push(one) });
    const sent = seen.map(({ body }) => records(body).map(({ id }) => id));
    assert.deepEqual(sent, [["a"], ["b", "c"], ["c"]]);
    assert.deepEqual(told.map(({ images }) => images), [1, 3, 4]);
    assert.ok(told.every(({ total, totalImages }) => total === undefined && totalImages === undefined));
  });
});

test("a request that fails ends the upload", async () => {
  const uploads = Array.from({ length: 65 }, (_, number) => ({ id: `${number}`, file: new Blob(["a"]) }));
  const first = written(...uploads.slice(0, 64).map(({ id }) => id));
  await against([first, json(400, {})], async (baseUrl, seen) => {
    let images = 0;
    const onProgress = (progress: UploadProgress) => void (images = progress.images);
    await assert.rejects(new RecoquestClient({ baseUrl }).upload("a", uploads, { onProgress }), ProblemError);
    assert.deepEqual([seen.length, images], [2, 64]);
  });
});

test("a stream that ends too early is opened again and tells nothing twice", async () => {
  const cut: Answer = (request, response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" }).write(event("running", "\n"));
    setTimeout(() => request.socket.destroy(), 50);
  };
  const answers = [stream(event("queued", "\n")), cut, stream(event("running", "\n"), event("failed", "\n"))];
  await against(answers, async (baseUrl) => {
    const states = [];
    for await (const job of new RecoquestClient({ baseUrl }).watchJob(1)) states.push(job.state);
    assert.deepEqual(states, ["queued", "running", "failed"]);
  });
  await against([stream(event("queued", "\n"))], async (baseUrl, seen) => {
    const states: string[] = [];
    const watch = async () => {
      for await (const job of new RecoquestClient({ baseUrl, retries: 1 }).watchJob(1)) states.push(job.state);
    };
    await assert.rejects(watch(), /ended before the job/);
    assert.deepEqual([states, seen.length], [["queued"], 2]);
  });
});

test("a caller who stops to watch closes the stream", async () => {
  let closed: Promise<void> | undefined;
  const endless: Answer = (request, response) => {
    closed = new Promise((done) => request.socket.on("close", done));
    response.writeHead(200, { "Content-Type": "text/event-stream" }).write(event("queued", "\n"));
  };
  await against([endless], async (baseUrl) => {
    for await (const job of new RecoquestClient({ baseUrl }).watchJob(1)) {
      assert.equal(job.state, "queued");
      break;
    }
    assert.ok(closed);
    await closed;
  });
});

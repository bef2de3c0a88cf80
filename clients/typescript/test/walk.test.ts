/** The whole way against a running service, whose address, key and pictures come by the environment. */

import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";

import { type Job, ProblemError, RecoquestClient, type Upload } from "recoquest";

const given = (name: string): string => {
  const value = process.env[name];
  assert.ok(value, `${name} is not set`);
  return value;
};

const baseUrl = given("RECOQUEST_URL");
const like = given("RECOQUEST_COLLECTION");
const pictures = given("RECOQUEST_PICTURES");
const client = new RecoquestClient({ baseUrl, key: given("RECOQUEST_KEY") });
const COLLECTION = "typescript";
const STRANGE = "patient #1? 50%";

const uploads: Upload[] = [];
for (const [number, name] of (await readdir(pictures)).sort().slice(0, 6).entries()) {
  const file = new Blob([await readFile(join(pictures, name))], { type: "image/png" });
  const id = number === 0 ? STRANGE : `picture-${number}`;
  uploads.push({ id, file, texts: [`picture number ${number}`], metadata: { even: number % 2 === 0 } });
}
const first = uploads[0]?.file;
assert.ok(first);

test("a caller without a key is told the problem", async () => {
  const stranger = new RecoquestClient({ baseUrl, retries: 0 });
  await assert.rejects(stranger.createCollection({ name: COLLECTION, same_model_as: like }), (error) => {
    assert.ok(error instanceof ProblemError);
    assert.equal(error.status, 401);
    assert.match(error.type, /^urn:recoquest:/);
    assert.match(error.help ?? "", /^\/docs\/problems#/);
    assert.ok(error.requestId);
    return true;
  });
});

test("a collection begins, and takes pictures; one that is none is refused", async () => {
  await client.createCollection({ name: COLLECTION, same_model_as: like });
  assert.ok((await client.collections()).some((collection) => collection.name === COLLECTION));
  const broken: Upload = { id: "broken", file: new Blob(["no picture"]) };
  const uploaded = await client.upload(COLLECTION, [...uploads, broken]);
  assert.equal(uploaded.counts.created, uploads.length);
  assert.deepEqual(
    uploaded.results.filter((result) => result.status === "refused").map((result) => result.id),
    ["broken"],
  );
});

test("errors of single fields are told", async () => {
  await assert.rejects(client.search(COLLECTION, { text: "a dog", limit: 0 }), (error) => {
    assert.ok(error instanceof ProblemError);
    assert.equal(error.status, 422);
    assert.deepEqual(error.errors.map((one) => one.field), ["limit"]);
    return true;
  });
});

test("a text finds pictures, a picture finds itself, and one that is liked finds others", async () => {
  const byText = await client.search(COLLECTION, { text: "picture number 3", limit: 3 });
  assert.deepEqual(byText.hits.map((hit) => hit.rank), [1, 2, 3]);
  const byPicture = await client.search(COLLECTION, { limit: 1 }, { images: [first] });
  const itself = byPicture.hits[0];
  assert.equal(itself?.id, STRANGE);
  assert.ok((itself.cosine ?? 0) > 0.99);
  const byLike = await client.search(COLLECTION, { like: [{ id: STRANGE }], limit: 10 });
  assert.equal(byLike.hits.length, uploads.length - 1);
  assert.ok(byLike.hits.every((hit) => hit.id !== STRANGE));
});

test("a map tells which parts of a picture fit a search", async () => {
  for (const options of [{}, { images: [first] }]) {
    const map = await client.similarityMap(COLLECTION, STRANGE, { text: "picture number 3" }, options);
    assert.equal(map.id, STRANGE);
    assert.equal(map.values.length, map.height);
    assert.ok(map.values.every((row) => row.length === map.width));
  }
});

test("pages of a search and of the images hold each image once", async () => {
  const found = [];
  for await (const page of client.searchPages(COLLECTION, { text: "a picture", limit: 4 })) {
    found.push(...page.hits.map((hit) => hit.id));
  }
  const byPicture = [];
  for await (const page of client.searchPages(COLLECTION, { limit: 4 }, { images: [first] })) {
    byPicture.push(...page.hits.map((hit) => hit.id));
  }
  const listed = [];
  for await (const page of client.imagePages(COLLECTION, { limit: 4, with: ["metadata", "texts"] })) {
    assert.ok(page.images.every((image) => image.texts?.length === 1 && image.labels === undefined));
    listed.push(...page.images.map((image) => image.id));
  }
  const all = uploads.map((upload) => upload.id);
  assert.deepEqual(listed, all);
  assert.deepEqual(found.sort(), [...all].sort());
  assert.deepEqual(byPicture.sort(), [...all].sort());
  const even = [];
  for await (const page of client.imagePages(COLLECTION, { filter: { field: "even", eq: true } })) {
    even.push(...page.images);
  }
  assert.equal(even.length, 3);
});

test("the file of an image is what was uploaded", async () => {
  const known = await client.image(COLLECTION, STRANGE);
  const file = await client.file(known.links.content);
  assert.deepEqual(Buffer.from(await file.arrayBuffer()), Buffer.from(await first.arrayBuffer()));
  await assert.rejects(client.file("https://elsewhere.example.org/x"), TypeError);
});

test("a link shows a picture without a key", async () => {
  const { url } = await client.link(COLLECTION, STRANGE, { rendition: "content", expires_in: 60 });
  const shown = await fetch(new URL(url, baseUrl));
  assert.deepEqual(Buffer.from(await shown.arrayBuffer()), Buffer.from(await first.arrayBuffer()));
});

test("a vector finds what its text finds", async () => {
  const text = "picture number 3";
  const vector = (await client.embed({ model: COLLECTION, input: [text] })).data[0]?.embedding;
  assert.ok(Array.isArray(vector));
  const byVector = await client.search(COLLECTION, { like: [{ vector }], limit: 3 });
  const byText = await client.search(COLLECTION, { text, limit: 3 });
  assert.deepEqual(byVector.hits.map((hit) => hit.id), byText.hits.map((hit) => hit.id));
});

test("a collection has another name and aliases", async () => {
  await client.createCollection({ name: "before", same_model_as: like });
  assert.equal((await client.renameCollection("before", "after")).name, "after");
  const made = await client.putAlias("current", "after");
  const moved = await client.putAlias("current", COLLECTION, { ifMatch: made.etag });
  assert.deepEqual(await client.aliases(), [moved]);
  await assert.rejects(
    client.deleteAlias("current", { ifMatch: made.etag }),
    (error) => error instanceof ProblemError && error.status === 412,
  );
  assert.equal((await client.deleteAlias("current", { ifMatch: moved.etag })).collection, COLLECTION);
  assert.deepEqual(await client.aliases(), []);
});

test("a hit is judged", async () => {
  const query = { text: "picture number 3" };
  const judged = await client.judge(COLLECTION, { query, hit: "picture-3", relevant: true });
  assert.equal(judged.relevant, true);
  const params = { path: { collection: COLLECTION } };
  const { data } = await client.api.GET("/v1/collections/{collection}/feedback", { params });
  assert.equal(data?.relevant, 1);
});

test("a change by who knows an older image is refused, and a removed image is gone", async () => {
  const before = await client.updateImage(COLLECTION, "picture-2", { labels: ["new"] });
  const changed = await client.updateImage(COLLECTION, "picture-2", { labels: ["seen"] });
  await assert.rejects(
    client.deleteImage(COLLECTION, "picture-2", { ifMatch: before.etag }),
    (error) => error instanceof ProblemError && error.status === 412,
  );
  await client.deleteImage(COLLECTION, "picture-2", { ifMatch: changed.etag });
  await assert.rejects(
    client.image(COLLECTION, "picture-2"),
    (error) => error instanceof ProblemError && error.type === "urn:recoquest:unknown-image",
  );
});

test("a job is followed to its end, and is among the jobs", async () => {
  const job = await client.startJob({ kind: "duplicates", collection: COLLECTION });
  const seen: Job[] = [];
  for await (const entry of client.watchJob(job.id, { signal: AbortSignal.timeout(90_000) })) seen.push(entry);
  assert.equal(seen.at(-1)?.state, "done", seen.at(-1)?.error ?? "");
  assert.ok(seen.length > 1);
  assert.ok(seen.at(-1)?.result);
  const second = await client.startJob({ kind: "tidy" });
  const numbers = [];
  for await (const page of client.jobPages({ limit: 1 })) numbers.push(...page.jobs.map((entry) => entry.id));
  assert.deepEqual(numbers, [second.id, job.id]);
});

test("a signal ends a call", async () => {
  const signal = AbortSignal.abort(new Error("stopped by the caller"));
  await assert.rejects(client.search(COLLECTION, { text: "a dog" }, { signal }), /stopped by the caller/);
});

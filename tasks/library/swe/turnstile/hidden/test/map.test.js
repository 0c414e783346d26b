import assert from "node:assert/strict";
import test from "node:test";

import { map } from "../src/index.js";
import { deferred, settle } from "./helpers.js";

test("results are in the order of the input", async () => {
  const waits = [30, 1, 20, 0, 10];
  const job = (ms, index) => new Promise((resolve) => setTimeout(resolve, ms, `${index}:${ms}`));
  for (const limit of [1, 2, 5, 9]) {
    assert.deepEqual(await map(waits, job, { limit }), ["0:30", "1:1", "2:20", "3:0", "4:10"]);
  }
});

test("results are in the order of the input, also if the first ends last", async () => {
  const ends = [deferred(), deferred(), deferred()];
  const all = map([0, 1, 2], (n) => ends[n].promise, { limit: 3 });
  for (const n of [2, 1, 0]) {
    await settle();
    ends[n].resolve(`r${n}`);
  }
  assert.deepEqual(await all, ["r0", "r1", "r2"]);
});

test("results that are undefined keep their place", async () => {
  assert.deepEqual(await map([1, 2, 3], async (n) => (n === 2 ? undefined : n), { limit: 3 }), [1, undefined, 3]);
});

test("nothing to do", async () => {
  assert.deepEqual(await map([], async () => 1, { limit: 3 }), []);
});

test("jobs without promises", async () => {
  assert.deepEqual(await map("abc", (letter, index) => letter + index, { limit: 2 }), ["a0", "b1", "c2"]);
});

test("no more than the limit run", async () => {
  let running = 0;
  let most = 0;
  await map(Array.from({ length: 20 }), async () => {
    running += 1;
    most = Math.max(most, running);
    await settle();
    running -= 1;
  }, { limit: 4 });
  assert.equal(most, 4);
});

/** Counts what was taken out of it, and whether it was closed. */
function source(length) {
  const seen = { taken: 0, closed: false };
  seen.items = (function* () {
    try {
      for (let n = 0; n < length; n += 1) {
        seen.taken += 1;
        yield n;
      }
    } finally {
      seen.closed = true;
    }
  })();
  return seen;
}

test("the input is read no further than there are places", async () => {
  const seen = source(100);
  const ends = Array.from({ length: 100 }, deferred);
  const all = map(seen.items, (n) => ends[n].promise, { limit: 3 });
  await settle();
  assert.equal(seen.taken, 3);
  ends[1].resolve();
  await settle();
  assert.equal(seen.taken, 4);
  for (const end of ends) end.resolve();
  await all;
  assert.equal(seen.taken, 100);
});

test("a long input can be failed out of", async () => {
  const seen = source(5000);
  await assert.rejects(map(seen.items, async (n) => {
    if (n === 50) throw new Error("fifty");
  }, { limit: 2 }), /fifty/);
  assert.ok(seen.taken <= 53);
  assert.equal(seen.closed, true);
});

test("asynchronous input", async () => {
  async function* slow() {
    for (const n of [3, 1, 2]) {
      await settle();
      yield n;
    }
  }
  assert.deepEqual(await map(slow(), async (n) => n * 10, { limit: 2 }), [30, 10, 20]);
});

test("after a failure nothing new is started", async () => {
  const started = [];
  const ends = Array.from({ length: 6 }, deferred);
  const all = map([0, 1, 2, 3, 4, 5], (n) => {
    started.push(n);
    return ends[n].promise;
  }, { limit: 3 });
  all.catch(() => {});
  await settle();
  ends[1].reject(new Error("one"));
  await settle();
  ends[0].resolve();
  await settle();
  assert.deepEqual(started, [0, 1, 2]);
  ends[2].resolve();
  await assert.rejects(all, /one/);
});

test("a failure is told once those that run have ended", async () => {
  const ends = [deferred(), deferred()];
  let settled = false;
  const all = map([0, 1], (n) => ends[n].promise, { limit: 2 }).finally(() => (settled = true));
  all.catch(() => {});
  await settle();
  ends[0].reject(new Error("zero"));
  await settle();
  assert.equal(settled, false);
  ends[1].resolve();
  await assert.rejects(all, /zero/);
});

test("the first failure is the one that is told", async () => {
  const ends = [deferred(), deferred()];
  const all = map([0, 1], (n) => ends[n].promise, { limit: 2 });
  all.catch(() => {});
  await settle();
  ends[1].reject(new Error("first"));
  await settle();
  ends[0].reject(new Error("second"));
  await assert.rejects(all, /first/);
});

test("an input that fails", async () => {
  function* bad() {
    yield 1;
    throw new Error("no more");
  }
  await assert.rejects(map(bad(), async (n) => n, { limit: 2 }), /no more/);
});

test("limits that make no sense", async () => {
  for (const limit of [0, -1, 1.5, NaN, undefined]) await assert.rejects(map([1], async () => 1, { limit }), RangeError);
});

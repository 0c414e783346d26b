import assert from "node:assert/strict";
import test from "node:test";

import { Pool } from "../src/index.js";
import { countingSignal, deferred, settle } from "./helpers.js";

/** A pool, and jobs by name that note their start and end when told. */
function setup(limit) {
  const pool = new Pool({ limit });
  const started = [];
  const ends = {};
  const job = (name) => () => {
    started.push(name);
    ends[name] = deferred();
    return ends[name].promise;
  };
  return { pool, started, ends, job };
}

test("no more than the limit run", async () => {
  const { pool, started, ends, job } = setup(2);
  const all = ["a", "b", "c", "d"].map((name) => pool.run(job(name)));
  await settle();
  assert.deepEqual([started.join(""), pool.running, pool.waiting], ["ab", 2, 2]);
  ends.b.resolve("B");
  await settle();
  assert.deepEqual([started.join(""), pool.running, pool.waiting], ["abc", 2, 1]);
  ends.a.resolve("A");
  ends.c.resolve("C");
  await settle();
  ends.d.resolve("D");
  assert.deepEqual(await Promise.all(all), ["A", "B", "C", "D"]);
  assert.deepEqual([pool.running, pool.waiting], [0, 0]);
});

test("a job that fails gives its place back", async () => {
  const { pool, started, ends, job } = setup(1);
  const failing = pool.run(job("a"));
  const next = pool.run(job("b"));
  await settle();
  ends.a.reject(new Error("boom"));
  await assert.rejects(failing, /boom/);
  await settle();
  assert.deepEqual([started.join(""), pool.running], ["ab", 1]);
  ends.b.resolve(1);
  assert.equal(await next, 1);
});

test("a job that throws at once is a job that fails", async () => {
  const pool = new Pool({ limit: 1 });
  for (let turn = 0; turn < 3; turn += 1) {
    await assert.rejects(pool.run(() => {
      throw new TypeError("at once");
    }), TypeError);
  }
  assert.deepEqual([pool.running, pool.waiting], [0, 0]);
  assert.equal(await pool.run(() => "plain"), "plain");
});

test("many failures leave a pool of use", { timeout: 10_000 }, async () => {
  const pool = new Pool({ limit: 3 });
  const results = await Promise.allSettled(Array.from({ length: 30 }, (_, n) => pool.run(async () => {
    if (n % 2) throw new Error(String(n));
    return n;
  })));
  assert.equal(results.filter(({ status }) => status === "fulfilled").length, 15);
  assert.equal(pool.running, 0);
});

test("those with a higher priority go first", async () => {
  const { pool, started, ends, job } = setup(1);
  pool.run(job("x"));
  for (const [name, priority] of [["a", 0], ["b", 2], ["c", 1], ["d", 2], ["e", 0], ["f", -1]]) pool.run(job(name), { priority });
  for (const name of "xbdcaef") {
    await settle();
    ends[name].resolve();
  }
  await settle();
  assert.equal(started.join(""), "xbdcaef");
});

test("an aborted job that waits never starts", async () => {
  const { pool, started, ends, job } = setup(1);
  const controller = new AbortController();
  pool.run(job("a"));
  const waiting = pool.run(job("b"), { signal: controller.signal });
  const last = pool.run(job("c"));
  await settle();
  controller.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
  assert.equal(pool.waiting, 1);
  ends.a.resolve();
  await settle();
  assert.equal(started.join(""), "ac");
  ends.c.resolve(3);
  assert.equal(await last, 3);
});

test("an aborted job that runs is left alone", async () => {
  const { pool, ends, job } = setup(1);
  const controller = new AbortController();
  const running = pool.run(job("a"), { signal: controller.signal });
  const next = pool.run(job("b"));
  await settle();
  controller.abort(new Error("enough"));
  await settle();
  assert.deepEqual([pool.running, pool.waiting], [1, 1]);
  ends.a.resolve("done");
  assert.equal(await running, "done");
  await settle();
  ends.b.resolve("b");
  assert.equal(await next, "b");
});

test("a signal that is aborted already", async () => {
  const { pool, started, job } = setup(1);
  await assert.rejects(pool.run(job("a"), { signal: AbortSignal.abort(new Error("early")) }), /early/);
  assert.deepEqual([started, pool.running, pool.waiting], [[], 0, 0]);
});

test("no listener stays on the signal", async () => {
  const pool = new Pool({ limit: 2 });
  const { signal, listeners } = countingSignal();
  await Promise.allSettled(Array.from({ length: 20 }, (_, n) => pool.run(async () => {
    if (n % 3 === 0) throw new Error("boom");
  }, { signal })));
  assert.equal(listeners(), 0);
});

test("abort after the end changes nothing", async () => {
  const { pool, ends, job } = setup(1);
  const { controller, signal } = countingSignal();
  const first = pool.run(job("a"), { signal });
  await settle();
  ends.a.resolve(1);
  assert.equal(await first, 1);
  pool.run(job("b"));
  const waits = pool.run(job("c"));
  controller.abort(new Error("late"));
  await settle();
  assert.deepEqual([pool.running, pool.waiting], [1, 1]);
  ends.b.resolve();
  await settle();
  ends.c.resolve(3);
  assert.equal(await waits, 3);
});

test("idle", { timeout: 10_000 }, async () => {
  const { pool, ends, job } = setup(1);
  await pool.idle();
  pool.run(job("a"));
  pool.run(job("b"));
  let idle = false;
  pool.idle().then(() => (idle = true));
  await settle();
  ends.a.resolve();
  await settle();
  assert.equal(idle, false);
  ends.b.resolve();
  await settle();
  assert.equal(idle, true);
});

test("idle after a failure", { timeout: 10_000 }, async () => {
  const { pool, ends, job } = setup(1);
  const failing = pool.run(job("a"));
  const idle = pool.idle();
  await settle();
  ends.a.reject(new Error("boom"));
  await assert.rejects(failing, /boom/);
  await idle;
});

test("limits that make no sense", () => {
  for (const limit of [0, -1, 1.5, NaN, "2", undefined]) assert.throws(() => new Pool({ limit }), RangeError);
});

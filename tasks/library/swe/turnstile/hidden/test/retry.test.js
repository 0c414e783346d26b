import assert from "node:assert/strict";
import test from "node:test";

import { retry } from "../src/index.js";
import { countingSignal, settle } from "./helpers.js";

/** Fails until the given attempt; notes attempts and waits. */
function setup(succeeds) {
  const seen = { attempts: [], waits: [] };
  seen.sleep = async (milliseconds) => void seen.waits.push(milliseconds);
  seen.job = async (attempt) => {
    seen.attempts.push(attempt);
    if (attempt < succeeds) throw new Error(`attempt ${attempt}`);
    return `done ${attempt}`;
  };
  return seen;
}

test("succeeds at once", async () => {
  const { job, sleep, attempts, waits } = setup(1);
  assert.equal(await retry(job, { sleep }), "done 1");
  assert.deepEqual([attempts, waits], [[1], []]);
});

test("waits twice as long each time", async () => {
  const { job, sleep, waits } = setup(5);
  assert.equal(await retry(job, { sleep, attempts: 5, delay: 10 }), "done 5");
  assert.deepEqual(waits, [10, 20, 40, 80]);
});

test("never waits longer than maxDelay", async () => {
  const { job, sleep, waits } = setup(6);
  await retry(job, { sleep, attempts: 6, delay: 10, maxDelay: 35 });
  assert.deepEqual(waits, [10, 20, 35, 35, 35]);
});

test("gives up after so many attempts", async () => {
  const { job, sleep, attempts, waits } = setup(100);
  await assert.rejects(retry(job, { sleep, attempts: 4, delay: 1 }), /attempt 4/);
  assert.deepEqual([attempts, waits], [[1, 2, 3, 4], [1, 2, 4]]);
});

test("three attempts unless told otherwise", async () => {
  const { job, sleep, attempts, waits } = setup(100);
  await assert.rejects(retry(job, { sleep }), /attempt 3/);
  assert.deepEqual([attempts, waits], [[1, 2, 3], [100, 200]]);
});

test("one attempt", async () => {
  const { job, sleep, waits } = setup(2);
  await assert.rejects(retry(job, { sleep, attempts: 1 }), /attempt 1/);
  assert.deepEqual(waits, []);
});

test("when says no", async () => {
  const { job, sleep, attempts } = setup(100);
  const asked = [];
  const when = (error, attempt) => {
    asked.push([error.message, attempt]);
    return attempt < 2;
  };
  await assert.rejects(retry(job, { sleep, when, attempts: 9 }), /attempt 2/);
  assert.deepEqual([attempts, asked], [[1, 2], [["attempt 1", 1], ["attempt 2", 2]]]);
});

test("a job that throws at once", async () => {
  const { sleep, waits } = setup(1);
  await assert.rejects(retry(() => {
    throw new TypeError("at once");
  }, { sleep }), TypeError);
  assert.equal(waits.length, 2);
});

test("an abort ends the wait", { timeout: 10_000 }, async () => {
  const { job, attempts } = setup(100);
  const { controller, signal, listeners } = countingSignal();
  const all = retry(job, { signal, delay: 20_000 });
  all.catch(() => {});
  await settle();
  controller.abort(new Error("enough"));
  await assert.rejects(all, /enough/);
  assert.deepEqual(attempts, [1]);
  assert.ok(listeners() <= 1);
});

test("an abort between two waits ends the next one", { timeout: 10_000 }, async () => {
  const { signal, controller } = countingSignal();
  const attempts = [];
  await assert.rejects(retry(async (attempt) => {
    attempts.push(attempt);
    if (attempt === 2) controller.abort(new Error("enough"));
    throw new Error("busy");
  }, { signal, delay: 1, attempts: 9 }), /enough/);
  assert.deepEqual(attempts, [1, 2]);
});

test("a signal that is aborted already", async () => {
  const { job, attempts } = setup(1);
  await assert.rejects(retry(job, { signal: AbortSignal.abort(new Error("early")) }), /early/);
  assert.deepEqual(attempts, []);
});

test("no listener stays on the signal", async () => {
  const { job } = setup(4);
  const { signal, listeners } = countingSignal();
  await retry(job, { signal, attempts: 4, delay: 1 });
  assert.equal(listeners(), 0);
});

test("no timer is left behind", async () => {
  const before = process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
  const { job } = setup(100);
  const { controller, signal } = countingSignal();
  const all = retry(job, { signal, delay: 5_000 });
  all.catch(() => {});
  await settle();
  controller.abort(new Error("enough"));
  await settle();
  const after = process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
  assert.ok(after <= before, `${after - before} timers more than before`);
  await assert.rejects(all, /enough/);
});

test("attempts that make no sense", async () => {
  for (const attempts of [0, -1, 1.5, NaN]) await assert.rejects(retry(async () => 1, { attempts }), RangeError);
});

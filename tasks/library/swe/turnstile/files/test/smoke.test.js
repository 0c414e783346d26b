import assert from "node:assert/strict";
import test from "node:test";

import { map, Pool, retry } from "../src/index.js";

test("a pool runs a job", async () => {
  const pool = new Pool({ limit: 1 });
  assert.equal(await pool.run(async () => 5), 5);
  assert.equal(pool.running, 0);
});

test("map", async () => {
  assert.deepEqual(await map([1, 2, 3], async (n) => n * 2, { limit: 2 }), [2, 4, 6]);
});

test("retry", async () => {
  const answer = await retry(async (attempt) => {
    if (attempt < 3) throw new Error("not yet");
    return attempt;
  }, { delay: 1 });
  assert.equal(answer, 3);
});

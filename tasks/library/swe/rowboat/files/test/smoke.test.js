import assert from "node:assert/strict";
import test from "node:test";

import { format, parse, Reader } from "../src/index.js";

test("reads fields", () => {
  assert.deepEqual(parse('a,b\n1,"x, y"\n'), [["a", "b"], ["1", "x, y"]]);
});

test("reads in chunks", () => {
  const reader = new Reader();
  assert.deepEqual(reader.push("a,b\nc"), [["a", "b"]]);
  assert.deepEqual(reader.push(",d\n"), [["c", "d"]]);
  assert.deepEqual(reader.end(), []);
});

test("writes fields", () => {
  assert.equal(format([["a", "b, c"]]), 'a,"b, c"\r\n');
});

import assert from "node:assert/strict";
import test from "node:test";

import { format, parse } from "../src/index.js";

test("plain fields", () => {
  assert.equal(format([["a", "b"], [1, true]]), "a,b\r\n1,true\r\n");
  assert.equal(format([]), "");
});

test("separators and quotes", () => {
  assert.equal(format([["a,b", 'say "hi"', ";"]]), '"a,b","say ""hi""",;\r\n');
  assert.equal(format([["a,b", "c;d"]], { separator: ";" }), 'a,b;"c;d"\r\n');
});

test("line ends of each kind are quoted", () => {
  assert.equal(format([["a\nb", "c\r\nd", "e\rf"]]), '"a\nb","c\r\nd","e\rf"\r\n');
});

test("white space at the ends is quoted", () => {
  assert.equal(format([[" a", "b ", "c d", "\te"]]), '" a","b ",c d,"\te"\r\n');
});

test("nothing", () => {
  assert.equal(format([[null, undefined, ""]]), ",,\r\n");
});

test("zero and false are something", () => {
  assert.equal(format([[0, false]]), "0,false\r\n");
  assert.equal(format([[-0, NaN, 0n]]), "0,NaN,0\r\n");
});

test("zero and false of objects are something", () => {
  assert.equal(format([{ a: 0, b: false }, { a: "", b: null }], { header: ["a", "b"] }), "a,b\r\n0,false\r\n,\r\n");
});

test("zero that stands alone needs no quotes", () => {
  assert.equal(format([[0], [false]]), "0\r\nfalse\r\n");
});

test("an empty field that stands alone", () => {
  assert.equal(format([[""], [null], ["a"]]), '""\r\n""\r\na\r\n');
});

test("objects by a header", () => {
  assert.equal(format([{ b: 2, a: 1 }, { a: null, c: 5 }], { header: ["a", "b"] }), "a,b\r\n1,2\r\n,\r\n");
});

test("what is written can be read", () => {
  const texts = ["", "a", " a", "a ", '"', '""', ",", ";", "\n", "\r", "\r\n", 'x"y', "a,b\r\nc", "\ta", "é"];
  for (const one of texts) {
    assert.deepEqual(parse(format([[one]])), [[one]], JSON.stringify(one));
    for (const other of texts) {
      const rows = [[one, other], ["x", one]];
      assert.deepEqual(parse(format(rows)), rows, JSON.stringify(rows));
      assert.deepEqual(parse(format(rows), { trim: true }), rows, JSON.stringify(rows));
    }
  }
});

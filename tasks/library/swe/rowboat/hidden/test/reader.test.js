import assert from "node:assert/strict";
import test from "node:test";

import { CsvError, parse, Reader } from "../src/index.js";

const bytes = (text) => new TextEncoder().encode(text);

/** The rows when the input comes in pieces of this size. */
function inPieces(input, size, options) {
  const reader = new Reader(options);
  const rows = [];
  for (let start = 0; start < input.length; start += size) rows.push(...reader.push(input.slice(start, start + size)));
  return [...rows, ...reader.end()];
}

const fails = (line, text, options) =>
  assert.throws(
    () => parse(text, options),
    (error) => error instanceof CsvError && error.line === line,
  );

test("line ends of each kind", () => {
  for (const end of ["\n", "\r\n", "\r"]) {
    assert.deepEqual(parse(`a,b${end}c,d${end}`), [["a", "b"], ["c", "d"]]);
    assert.deepEqual(parse(`a,b${end}c,d`), [["a", "b"], ["c", "d"]]);
  }
});

test("mixed line ends", () => {
  assert.deepEqual(parse("a\nb\r\nc\rd\n\re"), [["a"], ["b"], ["c"], ["d"], ["e"]]);
});

test("blank lines are skipped", () => {
  assert.deepEqual(parse("\n\na\r\n\r\n\rb\n\n"), [["a"], ["b"]]);
  assert.deepEqual(parse(""), []);
});

test("empty fields are kept", () => {
  assert.deepEqual(parse('a,,c\n,\n""\n'), [["a", "", "c"], ["", ""], [""]]);
  assert.deepEqual(parse("a,"), [["a", ""]]);
});

test("quoted fields", () => {
  assert.deepEqual(parse('"a,b","c""d","",""""\n'), [["a,b", 'c"d', "", '"']]);
});

test("line ends in quotes stay as they are", () => {
  assert.deepEqual(parse('"a\nb","c\r\nd","e\rf"\ng'), [["a\nb", "c\r\nd", "e\rf"], ["g"]]);
});

test("a quote in a plain field is a character", () => {
  assert.deepEqual(parse('a"b,5" 3"\n'), [['a"b', '5" 3"']]);
});

test("text after a closing quote", () => {
  fails(1, '"a"b\n');
  fails(2, 'x\n"a" ,b\n');
});

test("a quote that is never closed", () => {
  fails(1, '"a');
  fails(3, 'a\n\nb,"c\nd\ne');
});

test("lines are counted through quoted fields", () => {
  fails(4, '"a\r\nb\rc"\r\n"d"x');
  fails(3, '"a\nb"\n"c');
});

test("another separator", () => {
  assert.deepEqual(parse('a;"b;c";d,e\n', { separator: ";" }), [["a", "b;c", "d,e"]]);
  for (const separator of ["", ",,", '"', "\n"]) assert.throws(() => new Reader({ separator }), TypeError);
});

test("a header makes objects", () => {
  assert.deepEqual(parse("a,b\n1,2\n3,4\n", { header: true }), [{ a: "1", b: "2" }, { a: "3", b: "4" }]);
  assert.deepEqual(parse("a,b\n", { header: true }), []);
});

test("a short row has undefined", () => {
  assert.deepEqual(parse("a,b,c\n1\n1,2\n", { header: true }), [
    { a: "1", b: undefined, c: undefined },
    { a: "1", b: "2", c: undefined },
  ]);
});

test("a long row is refused", () => {
  fails(3, "a,b\n1,2\n1,2,3\n", { header: true });
});

test("trim", () => {
  assert.deepEqual(parse('a  ,"b ",\tc d \n', { trim: true }), [["a", "b ", "c d"]]);
  assert.deepEqual(parse(" a , b \n"), [[" a ", " b "]]);
});

const TEXT = 'name,"no\r\nte",x\r\n"a ""q""",,"1\n2"\r\n\r\nlast,"",z\r\n';
const ROWS = [["name", "no\r\nte", "x"], ['a "q"', "", "1\n2"], ["last", "", "z"]];

test("chunks of any size give the same rows", () => {
  for (let size = 1; size <= TEXT.length; size += 1) assert.deepEqual(inPieces(TEXT, size), ROWS, `size ${size}`);
});

test("chunks of bytes give the same rows", () => {
  const data = bytes(TEXT);
  for (let size = 1; size <= data.length; size += 1) assert.deepEqual(inPieces(data, size), ROWS, `size ${size}`);
});

test("a line end cut in two is one", () => {
  const reader = new Reader();
  assert.deepEqual(reader.push("a\r"), [["a"]]);
  assert.deepEqual(reader.push("\nb\r"), [["b"]]);
  assert.deepEqual(reader.push("\n"), []);
  assert.deepEqual(reader.end(), []);
});

test("lines are counted right however the chunks are cut", () => {
  for (const [line, text] of [[3, 'a\r\nb\r\n"c"d\r\n'], [4, 'a\r\n"b\r\nc"\r\n"d'], [5, "a\r\r\n\n\n\"b"]]) {
    for (let size = 1; size <= text.length; size += 1) {
      assert.throws(
        () => inPieces(text, size),
        (error) => error instanceof CsvError && error.line === line,
        `size ${size} of ${JSON.stringify(text)}`,
      );
    }
  }
});

test("a doubled quote cut in two", () => {
  assert.deepEqual(inPieces('"a""b"\n', 3), [['a"b']]);
  assert.deepEqual(inPieces('"a""b"\n', 2), [['a"b']]);
});

test("characters of several bytes", () => {
  const text = "Zoë,猫,👩‍🚀\n\"ß\n€\",ü\n";
  const rows = [["Zoë", "猫", "👩‍🚀"], ["ß\n€", "ü"]];
  const data = bytes(text);
  for (let size = 1; size <= 9; size += 1) assert.deepEqual(inPieces(data, size), rows, `size ${size}`);
});

test("a byte order mark is dropped", () => {
  const marked = bytes("\ufeffa,b\n1,2\n");
  for (const size of [1, 2, 3, 4, 100]) {
    assert.deepEqual(inPieces(marked, size, { header: true }), [{ a: "1", b: "2" }], `size ${size}`);
  }
  assert.deepEqual(parse("\ufeffa\n"), [["a"]]);
});

test("a byte order mark later on is text", () => {
  assert.deepEqual(inPieces(bytes("a\n\ufeffb\n"), 3), [["a"], ["\ufeffb"]]);
});

test("a character that is cut off at the end is not lost", () => {
  const reader = new Reader();
  assert.deepEqual(reader.push(bytes("a,é").slice(0, 3)), []);
  assert.deepEqual(reader.end(), [["a", "\ufffd"]]);
});

test("rows come as soon as they are complete", () => {
  const reader = new Reader();
  assert.deepEqual(reader.push('a,"b'), []);
  assert.deepEqual(reader.push('"\nc'), [["a", "b"]]);
  assert.deepEqual(reader.push("\n\nd\n"), [["c"], ["d"]]);
  assert.deepEqual(reader.end(), []);
});

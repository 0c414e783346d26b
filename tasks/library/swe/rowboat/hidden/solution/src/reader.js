import { CsvError } from "./errors.js";
import { Tokenizer } from "./tokenizer.js";

/** Reads CSV as it comes in. Options: separator, header, trim; see the README. */
export class Reader {
  #tokenizer;
  #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  #options;
  #header;
  #started = false;

  constructor(options = {}) {
    const { separator = ",", header = false, trim = false } = options;
    if (separator.length !== 1 || '"\r\n'.includes(separator)) {
      throw new TypeError(`not a separator: ${JSON.stringify(separator)}`);
    }
    this.#options = { header, trim };
    this.#tokenizer = new Tokenizer(separator);
  }

  /** The rows that this chunk (a string or bytes) completes. */
  push(chunk) {
    const text = typeof chunk === "string" ? chunk : this.#decoder.decode(chunk, { stream: true });
    return this.#rows(this.#tokenizer.take(this.#withoutMark(text)));
  }

  /** The rows that are left at the end. */
  end() {
    const rest = this.#tokenizer.take(this.#withoutMark(this.#decoder.decode()));
    return this.#rows([...rest, ...this.#tokenizer.finish()]);
  }

  #withoutMark(text) {
    if (this.#started || text === "") return text;
    this.#started = true;
    return text.startsWith("\ufeff") ? text.slice(1) : text;
  }

  #rows(found) {
    const rows = [];
    for (const { fields, line } of found) {
      const texts = fields.map(({ text, quoted }) => (this.#options.trim && !quoted ? text.trim() : text));
      if (!this.#options.header) rows.push(texts);
      else if (this.#header === undefined) this.#header = texts;
      else rows.push(this.#object(texts, line));
    }
    return rows;
  }

  #object(texts, line) {
    if (texts.length > this.#header.length) {
      throw new CsvError(`${texts.length} fields, the header has ${this.#header.length}`, line);
    }
    return Object.fromEntries(this.#header.map((name, index) => [name, texts[index]]));
  }
}

/** All rows of a text, or of bytes. */
export function parse(text, options) {
  const reader = new Reader(options);
  return [...reader.push(text), ...reader.end()];
}

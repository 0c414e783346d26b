import { CsvError } from "./errors.js";

const START = 0; // at the beginning of a field
const PLAIN = 1; // in a field without quotes
const QUOTED = 2; // in a field with quotes
const QUOTE = 3; // after a quote in such a field: it ends there, or the quote is doubled

/** A machine that takes characters, whichever way they are cut, and gives rows of { text, quoted }. */
export class Tokenizer {
  #separator;
  #state = START;
  #text = "";
  #row = [];
  #line = 1;
  #fieldLine = 1;
  #afterReturn = false; // the last character was \r; a \n that follows belongs to it

  constructor(separator) {
    this.#separator = separator;
  }

  /** The rows that these characters complete, each with the line on which it ends. */
  take(characters) {
    const rows = [];
    for (const character of characters) {
      const second = this.#afterReturn && character === "\n";
      this.#afterReturn = character === "\r";
      if (this.#state === QUOTED) this.#inQuotes(character, second);
      else if (!second) this.#outside(character, rows);
    }
    return rows;
  }

  /** The last row, if its line has no end. */
  finish() {
    if (this.#state === QUOTED) throw new CsvError("a quote is never closed", this.#fieldLine);
    const rows = [];
    if (this.#state !== START || this.#row.length > 0) this.#endRow(rows);
    return rows;
  }

  #inQuotes(character, second) {
    if (character === '"') {
      this.#state = QUOTE;
      return;
    }
    if (character === "\r" || (character === "\n" && !second)) this.#line += 1;
    this.#text += character;
  }

  #outside(character, rows) {
    if (character === this.#separator) return this.#endField();
    if (character === "\n" || character === "\r") {
      this.#endRow(rows);
      this.#line += 1;
      return undefined;
    }
    if (this.#state === QUOTE) {
      if (character !== '"') throw new CsvError("text after a closing quote", this.#fieldLine);
      this.#text += '"';
      this.#state = QUOTED;
      return undefined;
    }
    if (this.#state === START) {
      this.#fieldLine = this.#line;
      this.#state = character === '"' ? QUOTED : PLAIN;
      if (character === '"') return undefined;
    }
    this.#text += character;
    return undefined;
  }

  #endField() {
    this.#row.push({ text: this.#text, quoted: this.#state === QUOTE });
    this.#text = "";
    this.#state = START;
  }

  #endRow(rows) {
    const blank = this.#row.length === 0 && this.#state === START;
    if (!blank) {
      this.#endField();
      rows.push({ fields: this.#row, line: this.#line });
    }
    this.#row = [];
  }
}

/** What is wrong with a CSV text, and the line on which the field begins. */
export class CsvError extends Error {
  constructor(message, line) {
    super(`line ${line}: ${message}`);
    this.name = "CsvError";
    this.line = line;
  }
}

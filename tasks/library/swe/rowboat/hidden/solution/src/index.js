export { CsvError } from "./errors.js";
export { format } from "./format.js";
export { parse, Reader } from "./reader.js";

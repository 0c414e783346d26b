/** CSV of rows, which are arrays, or objects if a header is given. Options: separator, header. */
export function format(rows, { separator = ",", header } = {}) {
  const lines = header === undefined ? [] : [header];
  for (const row of rows) lines.push(header === undefined ? row : header.map((name) => row[name]));
  return lines.map((fields) => line(fields, separator)).join("");
}

function line(fields, separator) {
  const alone = fields.length === 1;
  return fields.map((value) => field(value, separator, alone)).join(separator) + "\r\n";
}

function field(value, separator, alone) {
  const text = value === null || value === undefined ? "" : String(value);
  const quoted = (alone && text === "") || needsQuotes(text, separator);
  return quoted ? `"${text.replaceAll('"', '""')}"` : text;
}

function needsQuotes(text, separator) {
  return text.includes(separator) || /["\r\n]|^\s|\s$/.test(text);
}

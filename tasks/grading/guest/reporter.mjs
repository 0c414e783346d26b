// A reporter of node:test that writes one JSON line for each test, and a last one with their number.
// Suites are no tests: what is wrong with one shows in those inside it, or in the test of its file.

const status = (kind, data) => {
  if (data.skip !== undefined || data.todo !== undefined) return "skipped";
  return kind === "test:pass" ? "passed" : "failed";
};

const explain = (error) => String(error?.cause?.message ?? error?.cause ?? error?.message ?? "");

export default async function* report(source) {
  const above = []; // names of the tests and suites that are open, by nesting
  let file = "";
  let tests = 0;
  for await (const { type, data } of source) {
    if (type === "test:start") {
      above.length = data.nesting;
      above[data.nesting] = data.name;
    } else if (type === "test:pass" || type === "test:fail") {
      file = data.file ?? file;
      const failed = type === "test:fail";
      // A suite counts only if something beside its tests failed.
      const own = data.details?.error?.failureType !== "subtestsFailed";
      if (data.details?.type === "suite" && !(failed && own)) continue;
      const path = [...above.slice(0, data.nesting), data.name];
      const seconds = (data.details?.duration_ms ?? 0) / 1000;
      const message = failed ? explain(data.details?.error) : "";
      tests += 1;
      yield JSON.stringify({ file, path, status: status(type, data), message, seconds }) + "\n";
    }
  }
  yield JSON.stringify({ tests }) + "\n";
}

import { sleep as pause } from "./sleep.js";

/** What `job(attempt)` returns when it succeeds at last; see the README for the options. */
export async function retry(job, options = {}) {
  const { attempts = 3, delay = 100, maxDelay = Infinity, when = () => true, signal, sleep = pause } = options;
  if (!Number.isInteger(attempts) || attempts < 1) {
    throw new RangeError(`attempts must be a whole number above 0, not ${attempts}`);
  }
  for (let attempt = 1; ; attempt += 1) {
    signal?.throwIfAborted();
    try {
      return await job(attempt);
    } catch (error) {
      if (attempt >= attempts || !when(error, attempt)) throw error;
    }
    await sleep(Math.min(delay * 2 ** (attempt - 1), maxDelay), signal);
  }
}

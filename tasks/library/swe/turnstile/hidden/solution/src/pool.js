/** At most `limit` jobs at the same time; see the README. */
export class Pool {
  #limit;
  #running = 0;
  #waiting = []; // highest priority first, then in the order of coming
  #watchers = [];

  constructor({ limit }) {
    if (!Number.isInteger(limit) || limit < 1) throw new RangeError(`limit must be a whole number above 0, not ${limit}`);
    this.#limit = limit;
  }

  get running() {
    return this.#running;
  }

  get waiting() {
    return this.#waiting.length;
  }

  /** What the job returns, once there was a place for it. Options: priority, signal. */
  async run(job, { priority = 0, signal } = {}) {
    await this.#place(priority, signal);
    try {
      return await job();
    } finally {
      this.#leave();
    }
  }

  /** Resolves when nothing runs or waits. */
  idle() {
    return new Promise((resolve) => {
      this.#watchers.push(resolve);
      this.#tell();
    });
  }

  /** Resolves when this job may run; its place is counted from then on. */
  #place(priority, signal) {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const abort = () => {
        this.#waiting.splice(this.#waiting.indexOf(entry), 1);
        reject(signal.reason);
        this.#tell();
      };
      const start = () => {
        signal?.removeEventListener("abort", abort);
        this.#running += 1;
        resolve();
      };
      const entry = { priority, start };
      const after = this.#waiting.findIndex((other) => other.priority < priority);
      this.#waiting.splice(after === -1 ? this.#waiting.length : after, 0, entry);
      signal?.addEventListener("abort", abort);
      this.#admit();
    });
  }

  #leave() {
    this.#running -= 1;
    this.#admit();
    this.#tell();
  }

  #admit() {
    while (this.#running < this.#limit && this.#waiting.length > 0) this.#waiting.shift().start();
  }

  #tell() {
    if (this.#running === 0 && this.#waiting.length === 0) for (const resolve of this.#watchers.splice(0)) resolve();
  }
}

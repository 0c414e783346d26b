/** The results of `job(item, index)` in the order of `items`, at most `limit` at the same time; see the README. */
export async function map(items, job, { limit }) {
  if (!Number.isInteger(limit) || limit < 1) throw new RangeError(`limit must be a whole number above 0, not ${limit}`);
  const source = iterator(items);
  const results = [];
  const failures = [];
  let done = false;
  let count = 0;
  let taking = Promise.resolve();

  /** The next item and its index, one caller at a time; nothing once it is over. */
  const take = () => {
    const turn = taking.then(async () => {
      if (done || failures.length > 0) return undefined;
      const step = await source.next();
      done = Boolean(step.done);
      return done ? undefined : { item: step.value, index: count++ };
    });
    taking = turn.catch(() => {});
    return turn;
  };

  const work = async () => {
    try {
      for (let next = await take(); next !== undefined; next = await take()) {
        results[next.index] = await job(next.item, next.index);
      }
    } catch (error) {
      failures.push(error);
    }
  };

  await Promise.all(Array.from({ length: limit }, work));
  if (failures.length > 0) {
    if (!done) await source.return?.();
    throw failures[0];
  }
  return results;
}

function iterator(items) {
  return items[Symbol.asyncIterator]?.() ?? items[Symbol.iterator]();
}

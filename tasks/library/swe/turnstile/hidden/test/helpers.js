/** A promise and what settles it. */
export function deferred() {
  const found = {};
  found.promise = new Promise((resolve, reject) => Object.assign(found, { resolve, reject }));
  return found;
}

/** Lets everything go on that can go on without time. */
export async function settle() {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

/** An AbortSignal that counts its listeners. */
export function countingSignal() {
  const controller = new AbortController();
  const { signal } = controller;
  let listeners = 0;
  const add = signal.addEventListener.bind(signal);
  const remove = signal.removeEventListener.bind(signal);
  signal.addEventListener = (...all) => {
    listeners += 1;
    add(...all);
  };
  signal.removeEventListener = (...all) => {
    listeners -= 1;
    remove(...all);
  };
  return { controller, signal, listeners: () => listeners };
}

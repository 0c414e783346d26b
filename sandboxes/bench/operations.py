"""What single operations of a backend cost, and what happens to them under load, in depth and in numbers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from forkgym.sandboxes.base import Backend, ExecResult, Sandbox, SandboxSpec
from forkgym.sandboxes.bench.timing import Timing, measure, measure_rate
from forkgym.sandboxes.errors import SandboxError

FILES, FILE_SIZE = 200, 25_000  # what an episode has written when it is forked: 5 MB
SEED = "/work/seed"
# One process writes all of them; the same is done in every backend and in the baseline.
WRITE_TREE = ["split", "-b", str(FILE_SIZE), "-a", "3", "-d", SEED, "/work/tree-"]
_STARTERS = 8
_RESTED = ", rested"


def unrested(operation: str) -> str:
    """The operation without the rest before it, as the baseline has it, which keeps nothing ready."""
    return operation.removesuffix(_RESTED)


def operations(backend: Backend, spec: SandboxSpec, n: int, rest: float) -> dict[str, Timing]:
    """Each operation ``n`` times, the slow ones less often, one after the other in one sandbox.

    Forks come twice: one after the other, and after ``rest`` seconds, when what is kept ready is ready again.
    """
    made: list[Sandbox] = []
    few = max(3, n // 5)

    def start() -> None:
        made.append(backend.create(spec))

    def end() -> None:
        while made:
            made.pop().close()

    found = {"create": measure(start, n, after=end), "destroy": measure(end, n, before=start)}
    with backend.create(spec) as box:
        shell, small, large = box.shell(), b"x" * 1_000, b"x" * 10_000_000
        found["exec true"] = measure(lambda: done(box.exec(["true"])), n)
        found["shell builtin"] = measure(lambda: done(shell.run(":")), n)
        found["shell /bin/true"] = measure(lambda: done(shell.run("/bin/true")), n)
        found["write 1 kB"] = measure(lambda: box.write_file("/work/small", small), n)
        found["read 1 kB"] = measure(lambda: box.read_file("/work/small"), n)
        found["write 10 MB"] = measure(lambda: box.write_file("/work/large", large), few)
        found["read 10 MB"] = measure(lambda: box.read_file("/work/large"), few)
        box.exec(["rm", "/work/large"])
        box.write_file(SEED, b"x" * (FILES * FILE_SIZE))

        def write() -> None:
            done(box.exec(WRITE_TREE))

        with _snapshots(backend) as take:
            found["snapshot"] = measure(lambda: take(box), few, before=write)
        found["fork 1"] = measure(partial(_fork, box, 1, made), few, before=write, after=end)
        found["fork 8"] = measure(partial(_fork, box, 8, made), few, before=write, after=end)

        def pause() -> None:
            write()
            time.sleep(rest)

        for count in (1, 8):
            timing = measure(partial(_fork, box, count, made), few, warmup=1, before=pause, after=end)
            found[f"fork {count}{_RESTED}"] = timing
    return found


def rates(cycle: Callable[[], object], concurrencies: Sequence[int], seconds: float) -> list[dict[str, Any]]:
    """Cycles of create, exec and destroy per second, by how many are under way at once."""
    rows: list[dict[str, Any]] = []
    for concurrency in concurrencies:
        rate, timing = measure_rate(cycle, concurrency, seconds)
        rows.append({"concurrency": concurrency, "cycles_per_s": rate, **timing.report()})
    return rows


def cycle(backend: Backend, spec: SandboxSpec) -> None:
    """Create, exec and destroy one sandbox."""
    with backend.create(spec) as box:
        done(box.exec(["true"]))


def depth(backend: Backend, spec: SandboxSpec, marks: Sequence[int], n: int) -> list[dict[str, Any]]:
    """The cost of a command, of reading 200 files and of a fork, after so many snapshots with a change before each."""
    rows: list[dict[str, Any]] = []
    children: list[Sandbox] = []
    taken = 0
    with backend.create(spec) as box, _snapshots(backend) as take:
        box.write_file(SEED, b"x" * (FILES * FILE_SIZE))
        done(box.exec(WRITE_TREE))
        for mark in marks:
            while taken < mark:
                box.write_file(f"/work/tree-{taken % FILES:03}", b"changed")
                take(box)
                taken += 1
            rows.append(
                {
                    "snapshots": mark,
                    "exec": measure(lambda: done(box.exec(["true"])), n).report(),
                    "read 200 files": measure(lambda: done(box.exec("cat /work/tree-* >/dev/null")), n).report(),
                    "fork 1": measure(
                        lambda: children.extend(box.fork(1)), n, warmup=1, after=lambda: children.pop().close()
                    ).report(),
                }
            )
    return rows


def alive(backend: Backend, spec: SandboxSpec, count: int) -> dict[str, Any]:
    """``count`` sandboxes at once: the time to start and to end all, and the machine's memory that they took.

    Memory is what the whole machine has less of (``MemAvailable``), so other programs must be quiet meanwhile.
    """
    boxes: list[Sandbox] = []
    before, begin = available_memory(), time.perf_counter()
    with ThreadPoolExecutor(_STARTERS) as threads:
        try:
            for made in [threads.submit(backend.create, spec) for _ in range(count)]:
                boxes.append(made.result())
            started = time.perf_counter()
            memory = before - available_memory()
            answering = sum(threads.map(_answers, boxes))
        finally:
            ending = time.perf_counter()
            list(threads.map(_close, boxes))
    return {
        "count": count,
        "answering": answering,
        "create_s": started - begin,
        "destroy_s": time.perf_counter() - ending,
        "memory_bytes": memory,
        "memory_per_sandbox_bytes": memory / count,
    }


def available_memory() -> int:
    """What the kernel says can be had without swapping, in bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise SandboxError("/proc/meminfo has no MemAvailable")


def done(result: ExecResult) -> None:
    """A benchmark's command must not fail. Raises ``SandboxError``."""
    if not result.ok:
        raise SandboxError(f"a command of the benchmark failed in the sandbox: {result}")


def _fork(box: Sandbox, count: int, made: list[Sandbox]) -> None:
    made.extend(box.fork(count))


def _answers(box: Sandbox) -> bool:
    return box.exec(["true"]).ok


def _close(box: Sandbox) -> None:
    box.close()


@contextlib.contextmanager
def _snapshots(backend: Backend) -> Generator[Callable[[Sandbox], None]]:
    """Takes snapshots, and deletes them at the end."""
    kept: list[str] = []
    try:
        yield lambda box: kept.append(box.snapshot("bench").id)
    finally:
        for id in kept:
            backend.delete_snapshot(id)

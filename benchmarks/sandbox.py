"""Sandbox operations, against doing the same with a raw process, with unshare(1), and with a container engine.

python benchmarks/sandbox.py [N]
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import Any

import docker_cli
from harness import Section, Timing, measure, measure_command

from forkgym.sandboxes import create
from forkgym.sandboxes.base import Sandbox

TARGETS = {"create": 12.0, "exec `true`": 2.0, "fork 1": 18.0}
DOCKER_RATIO = 15.0
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "true"]


def run(n: int = 100) -> Section:
    """Measure all operations in one go, so that the ratios are of the same moment."""
    ours = _ours(n)
    raw = {"exec `true`": measure_command(["true"], n, warmup=3)}
    if shutil.which("unshare"):
        raw["create"] = measure_command(UNSHARE, n, warmup=3)
    docker = docker_cli.run_all(max(5, n // 10)) if docker_cli.available() else {}
    docker = {"exec `true`" if name == "exec" else name: timing for name, timing in docker.items()}
    section = Section(
        "Sandbox (local backend)",
        [
            "operation",
            "ForkGym p50 / p95 ms",
            "target (p50)",
            "raw process p50 ms",
            "docker p50 ms",
            "docker / ForkGym",
        ],
    )
    for name, timing in ours.items():
        target = section.check(name, timing.p50, TARGETS[name]) if name in TARGETS else ""
        ratio = ""
        if name in docker:
            times = docker[name].p50 / timing.p50
            ratio = f"{times:.0f} ×"
            if times < DOCKER_RATIO:
                section.broken.append(f"{name}: {times:.1f} × faster than docker, target {DOCKER_RATIO:g} ×")
        section.rows.append((name, str(timing), target, _p50(raw.get(name)), _p50(docker.get(name)), ratio))
    section.notes.append(
        f"{n} times each, one after the other. Raw process: `true` as a child process; `unshare` with all namespaces, "
        "which is a bare namespace without a root file system of its own, files or forks."
    )
    if not docker:
        section.notes.append("No container daemon answered here, so that column is empty.")
    return section


def _ours(n: int) -> dict[str, Timing]:
    made: list[Sandbox] = []
    forks: list[Sandbox] = []

    def close_all(boxes: list[Sandbox]) -> None:
        while boxes:
            boxes.pop().close()

    results = {"create": measure(lambda: made.append(create()), n, after=lambda: close_all(made))}
    with create() as box:
        results["create + exec + close"] = measure(_cycle, n)
        results["exec `true`"] = measure(lambda: _ok(box.exec(["true"])), n)
        results["exec `bash -c true`"] = measure(lambda: _ok(box.exec("true")), n)
        shell = box.shell()
        results["shell, builtin"] = measure(lambda: _ok(shell.run(":")), n)
        results["shell, `/bin/true`"] = measure(lambda: _ok(shell.run("/bin/true")), n)
        results["write 1 KiB"] = measure(lambda: box.write_file("/work/f", b"x" * 1024), n)
        results["read 1 KiB"] = measure(lambda: box.read_file("/work/f"), n)
        results["snapshot"] = measure(lambda: box.snapshot(), max(5, n // 5))
        results |= _forks(box, n, forks, lambda: close_all(forks))
    return results


def _forks(box: Sandbox, n: int, forks: list[Sandbox], clean: Callable[[], None]) -> dict[str, Timing]:
    def fork(count: int) -> None:
        box.shell().run("echo step >> notes.txt")  # an episode changes something between two forks
        forks.extend(box.fork(count))

    return {
        "fork 1": measure(lambda: fork(1), max(5, n // 2), after=clean),
        "fork 8": measure(lambda: fork(8), max(5, n // 5), after=clean),
    }


def _cycle() -> None:
    with create() as box:
        _ok(box.exec(["true"]))


def _ok(result: Any) -> None:
    if not result.ok:
        raise RuntimeError(f"a benchmark command failed: {result}")


def _p50(timing: Timing | None) -> str:
    return "" if timing is None else f"{timing.p50:.2f}"


if __name__ == "__main__":
    sys.stdout.write(run(*map(int, sys.argv[1:2])).markdown())

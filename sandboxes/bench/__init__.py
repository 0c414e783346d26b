"""``run()``: the costs of sandboxes on this machine, every backend and the bare docker SDK in one run, as one document.

``docs/sandboxes.md`` describes the document. Times end in ``_ms`` or ``_s``, sizes in ``_bytes``.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from forkgym import __version__, sandboxes
from forkgym.errors import ConfigError
from forkgym.sandboxes.base import Backend, SandboxSpec
from forkgym.sandboxes.bench import baseline, footprint, operations
from forkgym.sandboxes.bench.timing import Timing

SCHEMA = 1
TRAJECTORIES, STEPS = 1_000_000, 150


@dataclass(frozen=True)
class Effort:
    """How much is measured: repetitions, seconds per concurrency, sandboxes at once, cycles of the leak test.

    ``rest``: seconds before each fork that is called rested, as a model thinks between two.
    """

    repetitions: int = 100
    baseline_repetitions: int = 10
    concurrencies: tuple[int, ...] = (1, 2, 8, 32)
    seconds: float = 3.0
    depths: tuple[int, ...] = (0, 8, 32, 64)
    alive: int = 100
    cycles: int = 1000
    rest: float = 2.0

    def __post_init__(self) -> None:
        for name in ("repetitions", "baseline_repetitions", "alive", "cycles"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; give at least 1")

    def for_containers(self) -> Effort:
        """The same for a backend whose sandboxes cost as much as containers: fewer of everything."""
        return replace(
            self,
            repetitions=min(self.repetitions, 20),
            depths=self.depths[:2],
            alive=min(self.alive, 20),
            cycles=min(self.cycles, 50),
        )


QUICK = Effort(5, 2, (1, 8), 0.5, (0, 4), 8, 20, rest=0.1)


def run(
    backends: Sequence[str],
    *,
    image: str = "host",
    effort: Effort | None = None,
    compare: bool = True,
    say: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    """Measure these backends, and the bare docker SDK where a daemon answers, and return one document.

    ``say`` is told what is being measured. Raises ``ConfigError`` and ``SandboxError``; nothing is left behind.
    """
    effort = effort or Effort()
    document: dict[str, Any] = {"schema": SCHEMA, "kind": "sandbox", "forkgym": __version__,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(), "image": image, "effort": asdict(effort)}  # fmt: skip
    spec = SandboxSpec(image=image)
    opened = {name: sandboxes.backend(name) for name in dict.fromkeys(backends)}
    document["backends"] = {name: _backend(one, spec, effort, say) for name, one in opened.items()}
    client = baseline.connect() if compare else None
    document["baseline"] = _baseline(client, effort, say) if client is not None else None
    document["ratios"] = _ratios(document) if client is not None else {}
    return document


def _backend(backend: Backend, spec: SandboxSpec, effort: Effort, say: Callable[[str], object]) -> dict[str, Any]:
    cycle = partial(operations.cycle, backend, spec)
    begin = time.perf_counter()
    cycle()
    found: dict[str, Any] = {"first_cycle_ms": (time.perf_counter() - begin) * 1000}
    can = backend.capabilities()
    found["tier"], found["isolation"] = can.tier, can.isolation
    if can.isolation == "container":
        effort = effort.for_containers()
    say(f"{backend.name}: single operations")
    timings = operations.operations(backend, spec, effort.repetitions, effort.rest)
    found["operations"] = {name: timing.report() for name, timing in timings.items()}
    found["rollouts"] = rollouts(timings)
    say(f"{backend.name}: cycles per second")
    found["rates"] = operations.rates(cycle, effort.concurrencies, effort.seconds)
    say(f"{backend.name}: depth")
    found["depth"] = operations.depth(backend, spec, effort.depths, max(3, effort.repetitions // 10))
    say(f"{backend.name}: {effort.alive} sandboxes at once")
    found["alive"] = operations.alive(backend, spec, effort.alive)
    say(f"{backend.name}: what {effort.cycles} cycles leave behind")
    found["left"] = {"cycles": effort.cycles, **footprint.leak(cycle, effort.cycles)}
    return found


def _baseline(client: Any, effort: Effort, say: Callable[[str], object]) -> dict[str, Any]:
    say("docker SDK: single operations")
    with contextlib.closing(client), contextlib.closing(baseline.Baseline(client)) as bare:
        timings = bare.operations(effort.baseline_repetitions)
        say("docker SDK: cycles per second")
        return {
            "name": "docker SDK",
            "engine": client.version()["Version"],
            "operations": {name: timing.report() for name, timing in timings.items()},
            "rates": operations.rates(bare.cycle, effort.concurrencies, effort.seconds),
            "rollouts": rollouts(timings),
        }


def rollouts(timings: Mapping[str, Timing]) -> dict[str, float]:
    """What the substrate alone costs in worker-hours: one million trajectories of create, 150 commands and destroy.

    Sums of means; the time of the model and of the commands themselves comes on top.
    """
    each = (timings["create"].mean + STEPS * timings["exec true"].mean + timings["destroy"].mean) / 1000
    return {"trajectories": TRAJECTORIES, "steps": STEPS, "seconds_each": each,
            "worker_hours": each * TRAJECTORIES / 3600}  # fmt: skip


def _ratios(document: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """How many times as long the baseline takes (p50); for rates, how many times as many cycles we do."""
    bare = document["baseline"]
    ratios: dict[str, dict[str, float]] = {}
    for name, found in document["backends"].items():
        times = {
            operation: theirs["p50_ms"] / ours["p50_ms"]
            for operation, ours in found["operations"].items()
            if (theirs := bare["operations"].get(operations.unrested(operation))) is not None
        }
        for ours, theirs in zip(found["rates"], bare["rates"], strict=True):
            times[f"cycles/s at {ours['concurrency']}"] = ours["cycles_per_s"] / theirs["cycles_per_s"]
        times["worker-hours"] = bare["rollouts"]["worker_hours"] / found["rollouts"]["worker_hours"]
        ratios[name] = times
    return ratios


def machine() -> dict[str, Any]:
    """What it was measured on."""
    return {
        "cores": os.cpu_count(),
        "cpu": _cpu(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
        "root": os.getuid() == 0,
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()

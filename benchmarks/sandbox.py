"""Sandbox operations of every backend that works here against the docker SDK alone, with this project's targets.

python benchmarks/sandbox.py        # the same numbers without targets: forkgym bench sandbox
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harness import Section

from forkgym.errors import ForkGymError
from forkgym.sandboxes import BACKENDS, backend, bench
from forkgym.sandboxes.bench.operations import unrested

# Most milliseconds, and at least how many times faster than the docker SDK. Containers are kept ready for forks, which
# takes the daemon a while for each: so the target of docker's forks is for those with a rest between them.
TARGETS: dict[str, dict[str, tuple[float | None, float | None]]] = {
    "local": {
        "create": (8, 30),
        "exec true": (1.2, 40),
        "shell builtin": (0.1, None),
        "shell /bin/true": (1, None),
        "read 1 kB": (0.2, 100),
        "write 1 kB": (0.5, 100),
        "snapshot": (7, 35),
        "fork 1": (14, 45),
        "fork 8": (75, 20),
        "destroy": (3, 30),
    },
    "docker": {"exec true": (2, 20), "read 1 kB": (None, 20), "fork 1, rested": (10, 50)},
}
OVER_API = "docker?via=api"
RATE, RATE_RATIO = 150, 25
ALIVE, ALIVE_MEMORY = 500, 4096  # sandboxes, MiB


def run() -> list[Section]:
    """Measure all in one go, so that the ratios are of the same moment."""
    found = bench.run(
        [name for name in (*BACKENDS, OVER_API) if _works(name)],
        effort=replace(bench.Effort(), alive=ALIVE),
        say=lambda line: print(line, file=sys.stderr),
    )
    sections = [_section(name, found) for name in found["backends"]]
    if found["baseline"] is None:
        sections[0].notes.append("No docker daemon answered here, so nothing is compared with its SDK.")
    return sections


def _section(name: str, found: Mapping[str, Any]) -> Section:
    one, ratios = found["backends"][name], found["ratios"].get(name, {})
    bare: Mapping[str, Any] = found["baseline"] or {"operations": {}, "rates": []}
    section = Section(
        f"Sandbox ({name} backend, {one['tier']})",
        ["operation", "p50 / p95 ms", "target (p50)", "docker SDK p50 ms", "docker SDK / ForkGym", "target"],
    )
    for operation, timing in one["operations"].items():
        most, least = TARGETS.get(name, {}).get(operation, (None, None))
        theirs, ratio = bare["operations"].get(unrested(operation)), ratios.get(operation)
        section.rows.append(
            (
                operation,
                f"{timing['p50_ms']:.2f} / {timing['p95_ms']:.2f}",
                "" if most is None else section.check(f"{name} {operation}", timing["p50_ms"], most),
                "" if theirs is None else f"{theirs['p50_ms']:.1f}",
                "" if ratio is None else f"{ratio:.0f} ×",
                "" if ratio is None or least is None else section.check_least(f"{name} {operation}", ratio, least, "×"),
            )
        )
    _notes(section, name, one, bare, ratios)
    return section


def _notes(
    section: Section, name: str, one: Mapping[str, Any], bare: Mapping[str, Any], ratios: Mapping[str, float]
) -> None:
    """What is no single operation: load, depth, numbers, leaks, and what a million trajectories cost."""
    rates = ", ".join(f"{row['cycles_per_s']:.0f} at {row['concurrency']}" for row in one["rates"])
    theirs = ", ".join(f"{row['cycles_per_s']:.1f} at {row['concurrency']}" for row in bare["rates"])
    line = f"Cycles of create, exec and destroy per second, by concurrency: {rates}"
    section.notes.append(f"{line} (docker SDK: {theirs})." if theirs else f"{line}.")
    depth = ", ".join(
        f"{row['snapshots']}: {row['exec']['p50_ms']:.1f} / {row['read 200 files']['p50_ms']:.1f} / "
        f"{row['fork 1']['p50_ms']:.1f}"
        for row in one["depth"]
    )
    section.notes.append(f"After so many snapshots, ms for exec / reading 200 files / fork 1: {depth}.")
    alive, left = one["alive"], dict(one["left"])
    memory = alive["memory_bytes"] / 2**20
    section.notes.append(
        f"{alive['answering']} of {alive['count']} alive at once answered: {memory:.0f} MiB, "
        f"{memory / alive['count']:.1f} each; started in {alive['create_s']:.1f} s, gone in {alive['destroy_s']:.1f} s."
    )
    cycles = left.pop("cycles")
    kept = {kind: count for kind, count in left.items() if count > 0}
    section.notes.append(f"{cycles} cycles left {kept or 'nothing'} behind.")
    hours = one["rollouts"]["worker_hours"]
    other = f" (docker SDK: {bare['rollouts']['worker_hours']:,.0f})" if "rollouts" in bare else ""
    section.notes.append(
        f"Projected for one million trajectories of 150 steps: {hours:,.0f} worker-hours of the substrate alone{other}."
    )
    if kept:
        section.broken.append(f"{name}: {cycles} cycles left {kept}")
    if name == "local":
        section.check(f"memory of {ALIVE} sandboxes", memory, ALIVE_MEMORY, "MiB")
        rate = next(row["cycles_per_s"] for row in one["rates"] if row["concurrency"] == 8)
        section.check_least("cycles at concurrency 8", rate, RATE, "per second")
        if ratios:
            section.check_least("cycles at concurrency 8", ratios["cycles/s at 8"], RATE_RATIO, "× the docker SDK")


def _works(name: str) -> bool:
    try:
        backend(name).capabilities()
    except ForkGymError as error:
        print(f"{name} is not measured: {error}", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    for each in run():
        print(each.markdown())

"""``forkgym bench sandbox``: the costs of sandboxes on this machine, as tables and as one JSON document."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from forkgym.cli.output import err, out, print_json, print_table
from forkgym.errors import ConfigError
from forkgym.sandboxes import bench

MIB = 1 << 20


def bench_sandbox(
    backends: Sequence[str],
    *,
    image: str,
    quick: bool,
    alive: int | None,
    cycles: int | None,
    baseline: bool,
    json_path: Path | None,
) -> None:
    """Measure, then show; progress goes to standard error."""
    to_stdout = json_path is not None and str(json_path) == "-"
    if json_path is not None and not json_path.parent.is_dir():  # said now and not after minutes of measuring
        raise ConfigError(f"--json {json_path}: there is no folder {json_path.parent}")
    effort = bench.QUICK if quick else bench.Effort()
    effort = replace(effort, alive=alive or effort.alive, cycles=cycles or effort.cycles)
    found = bench.run(
        backends, image=image, effort=effort, compare=baseline, say=lambda line: err.print(line, style="dim")
    )
    if to_stdout:
        print_json(found)
        return
    if json_path is not None:
        json_path.write_text(json.dumps(found, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    _show(found)
    if baseline and found["baseline"] is None:
        out.print("No docker daemon answered (or its SDK is not installed), so nothing is compared with it.")


def _show(found: Mapping[str, Any]) -> None:
    measured: dict[str, Any] = dict(found["backends"])
    if found["baseline"] is not None:
        measured[found["baseline"]["name"]] = found["baseline"]
    operations = Table("operation", *(f"{name}\np50 / p95 ms" for name in measured))
    rates = Table("cycles per second at", *measured)
    ratios = found["ratios"]
    for name in ratios:
        operations.add_column(f"docker SDK\n/ {name}", justify="right")
        rates.add_column(f"{name}\n/ docker SDK", justify="right")
    first = next(iter(measured.values()))
    for operation in first["operations"]:
        cells = [_timing(one["operations"].get(operation)) for one in measured.values()]
        operations.add_row(operation, *cells, *(_times(ratios[name].get(operation)) for name in ratios))
    for index, row in enumerate(first["rates"]):
        cells = [f"{one['rates'][index]['cycles_per_s']:.1f}" for one in measured.values()]
        key = f"cycles/s at {row['concurrency']}"
        rates.add_row(f"concurrency {row['concurrency']}", *cells, *(_times(ratios[name][key]) for name in ratios))
    print_table(operations)
    print_table(rates)
    for name, one in found["backends"].items():
        _show_rest(name, one)
    for name, one in measured.items():
        rollouts = one["rollouts"]
        out.print(
            f"{name}: {rollouts['trajectories']:,} trajectories of {rollouts['steps']} steps cost "
            f"{rollouts['worker_hours']:,.0f} worker-hours of the substrate alone",
            soft_wrap=True,
        )


def _show_rest(name: str, one: Mapping[str, Any]) -> None:
    depth = Table(f"{name}: after snapshots", "exec true", "read 200 files", "fork 1 (p50 / p95 ms)")
    for row in one["depth"]:
        depth.add_row(str(row["snapshots"]), *(_timing(row[key]) for key in ("exec", "read 200 files", "fork 1")))
    print_table(depth)
    alive, left = one["alive"], dict(one["left"])
    out.print(
        f"{name}: {alive['answering']} of {alive['count']} alive at once answered; started in "
        f"{alive['create_s']:.1f} s, gone in {alive['destroy_s']:.1f} s, "
        f"{alive['memory_per_sandbox_bytes'] / MIB:.1f} MiB each",
        soft_wrap=True,
    )
    cycles = left.pop("cycles")
    kept = ", ".join(f"{count} {kind}" for kind, count in left.items() if count > 0)
    out.print(f"{name}: {cycles} cycles left {kept or 'nothing'} behind", soft_wrap=True)


def _timing(timing: Mapping[str, float] | None) -> str:
    return "–" if timing is None else f"{timing['p50_ms']:.2f} / {timing['p95_ms']:.2f}"


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.1f} ×"

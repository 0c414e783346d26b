"""``forkgym bench sandbox`` measures everything it promises, and the numbers agree with one another."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from forkgym.sandboxes import backend
from forkgym.sandboxes.base import SandboxSpec
from forkgym.sandboxes.bench import baseline, footprint, operations, rollouts
from forkgym.sandboxes.bench.timing import Timing, measure

Run = Callable[..., Any]

OPERATIONS = {
    "create", "destroy", "exec true", "shell builtin", "shell /bin/true", "write 1 kB", "read 1 kB", "write 10 MB",
    "read 10 MB", "snapshot", "fork 1", "fork 8", "fork 1, rested", "fork 8, rested",
}  # fmt: skip


def test_one_run_holds_every_measure(forkgym: Run, tmp_path: Path) -> None:
    words = ("--backend", "local", "--quick", "--alive", "6", "--cycles", "10", "--no-baseline", "--json", "out.json")
    done = forkgym("bench", "sandbox", *words)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    assert (found["schema"], found["kind"], found["image"]) == (1, "sandbox", "host")
    assert (found["baseline"], found["ratios"]) == (None, {})
    local = found["backends"]["local"]
    assert set(local["operations"]) == OPERATIONS
    for timing in local["operations"].values():
        assert timing["n"] >= 3
        assert 0 < timing["min_ms"] <= timing["p50_ms"] <= timing["p95_ms"]
    assert [row["concurrency"] for row in local["rates"]] == found["effort"]["concurrencies"]
    assert all(row["cycles_per_s"] > 0 for row in local["rates"])
    assert [row["snapshots"] for row in local["depth"]] == found["effort"]["depths"]
    assert (local["alive"]["count"], local["alive"]["answering"]) == (6, 6)
    assert local["left"]["cycles"] == 10
    assert "No docker daemon" not in done.stdout
    for shown in (*OPERATIONS, "concurrency 8", "6 of 6 alive at once answered", "worker-hours"):
        assert shown in done.stdout


def test_a_folder_that_is_not_there_is_said_before_anything_is_measured(forkgym: Run) -> None:
    done = forkgym("bench", "sandbox", "--json", "nowhere/out.json")
    assert done.returncode == 2
    assert "nowhere" in done.stderr
    assert "single operations" not in done.stderr


def test_an_unknown_backend_is_wrong_input(forkgym: Run) -> None:
    done = forkgym("bench", "sandbox", "--backend", "locl")
    assert done.returncode == 2
    assert "did you mean 'local'" in done.stderr


def test_worker_hours_are_sums_of_means() -> None:
    timings = {"create": Timing([10.0, 30.0]), "exec true": Timing([2.0]), "destroy": Timing([40.0])}
    found = rollouts(timings)
    assert found["seconds_each"] == pytest.approx(0.020 + 150 * 0.002 + 0.040)
    assert found["worker_hours"] == pytest.approx(100.0)


def test_percentiles() -> None:
    timing = Timing([float(value) for value in range(1, 101)])
    assert (timing.p50, timing.p95, timing.mean) == (50.5, 96.0, 50.5)


def test_only_the_operation_is_timed() -> None:
    order: list[str] = []
    timing = measure(
        partial(order.append, "op"), 2, warmup=1, before=partial(order.append, "b"), after=partial(order.append, "a")
    )
    assert order == ["b", "op", "a"] * 3
    assert len(timing.samples) == 2


def test_a_hundred_cycles_leave_nothing_behind() -> None:
    cycle = partial(operations.cycle, backend("local"), SandboxSpec())
    left = footprint.leak(cycle, 100)
    assert {kind: count for kind, count in left.items() if count > 0} == {}


def test_a_container_that_stays_is_seen() -> None:
    client = baseline.connect()
    if client is None:
        pytest.skip("no docker daemon answers, or its SDK is not installed")
    client.close()
    before = footprint.Footprint.now()
    with backend("docker").create(SandboxSpec()):
        during = footprint.Footprint.now()
    assert during.more_than(before)["containers"] >= 1


def test_a_leak_is_seen() -> None:
    kept = []
    left = footprint.leak(lambda: kept.append(backend("local").create(SandboxSpec())), 2, patience=0.5)
    for box in kept:
        box.close()
    assert left["processes"] == 2
    assert left["files"] >= 2
    assert left["descriptors"] >= 2


def test_the_docker_sdk_does_the_same_and_leaves_nothing_behind() -> None:
    client = baseline.connect()
    if client is None:
        pytest.skip("no docker daemon answers, or its SDK is not installed")
    bare = baseline.Baseline(client)
    try:
        timings = bare.operations(1)
        bare.cycle()
    finally:
        bare.close()
    assert set(timings) == {operations.unrested(each) for each in OPERATIONS} - {"shell builtin", "shell /bin/true"}
    assert client.containers.list(all=True, filters={"label": bare.name}) == []
    for filters in ({"label": bare.name}, {"reference": bare.name}):
        assert client.images.list(all=True, filters=filters) == []
    client.close()

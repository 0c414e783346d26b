"""The same predictions on the Docker backend: the verdicts do not depend on the kind of sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forkgym import tasks
from forkgym.sandboxes import backend
from forkgym.tasks.importers.swebench_eval import Prediction, evaluate, missing

pytest.importorskip("swebench", reason="the extra 'swe' is not installed")


@pytest.mark.usefixtures("daemon")
def test_predictions_in_containers(example: Any, tmp_path: Path) -> None:
    machines = backend("docker")
    rows = [example.row(instance_id=f"acme__rates-{number}") for number in (1, 2)]
    made = tasks.from_swebench(rows, image="host", repositories=example.clones, timeout=60)
    assert missing(made[0], machines) == ""
    given = {
        "acme__rates-1": Prediction("acme__rates-1", "m", example.patch),
        "acme__rates-2": Prediction("acme__rates-2", "m", example.patch.replace("/ RATES", "% RATES")),
    }
    outcomes = evaluate(made.__getitem__, given, machines, tmp_path, concurrency=2)
    assert {name: outcome.stage for name, outcome in outcomes.items()} == {
        "acme__rates-1": "resolved", "acme__rates-2": "unresolved",
    }  # fmt: skip


@pytest.mark.usefixtures("daemon")
def test_an_image_that_is_not_there_is_named(example: Any) -> None:
    official = tasks.from_swebench([example.row()])[0]
    assert "swebench/sweb.eval.x86_64.acme_1776_rates-7:latest" in missing(official, backend("docker"))

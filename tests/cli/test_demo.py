"""The demo from end to end with a tiny random model: everything is real but the size."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forkgym.agents.records import read_episodes

TINY = ["model.name=tiny-random", "model.train_layers=null", "env.tasks=swe/tiny/clamp/[lu]*", "steps=2"]
WORDS = [
    "demo",
    *(f"{run}.{override}" for run in ("sft", "grpo") for override in TINY),
    "sft.episodes_per_step=4",
    "grpo.rollout.groups=2",
    "grpo.rollout.group_size=2",
    "grpo.sampling.max_tokens=16",
    "--out",
    "d",
]


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "forkgym.cli.main", *WORDS],
        cwd=folder, env={**os.environ, "COLUMNS": "120"}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_demo_is_interrupted_and_goes_on_to_its_report(tmp_path: Path) -> None:
    child = start(tmp_path)
    deadline = time.monotonic() + 90
    while not list((tmp_path / "d" / "sft" / "checkpoints").glob("step-*")):
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130, errors
    assert "Traceback" not in errors
    before = (tmp_path / "d" / "before.jsonl").read_bytes()

    again = start(tmp_path)
    shown, errors = again.communicate(timeout=100)
    assert again.returncode == 0, errors
    assert (tmp_path / "d" / "before.jsonl").read_bytes() == before
    for stage in ("before training", "after SFT", "after GRPO"):
        assert stage in shown
    page = (tmp_path / "d" / "report.html").read_text()
    assert "tiny-random works in real sandboxes" in page
    assert page.count('class="episode"') == 3
    assert json.loads((tmp_path / "d" / "demo.json").read_text())["finished"] is True
    rows = [json.loads(line) for line in (tmp_path / "d" / "grpo" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if row["kind"] == "train"] == [1, 2]
    trained = read_episodes(tmp_path / "d" / "grpo" / "episodes" / "train-000001.jsonl").episodes
    assert len(trained) == 4


def test_demo_touches_no_folder_of_others(forkgym: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "thesis.txt").write_text("years of work")
    done = forkgym(*WORDS)
    assert done.returncode == 2
    assert "not a demo" in done.stderr
    assert [path.name for path in (tmp_path / "d").iterdir()] == ["thesis.txt"]


def test_demo_refuses_an_override_that_names_no_run(forkgym: Callable[..., Any], tmp_path: Path) -> None:
    done = forkgym("demo", "steps=3")
    assert done.returncode == 2
    assert "write sft.key=value or grpo.key=value" in done.stderr
    assert list(tmp_path.iterdir()) == []

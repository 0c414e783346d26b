"""Ctrl-C in the middle of a step of real training: sandboxes gone, checkpoint good, exit code 130."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from forkgym.trainers.checkpoint import find
from forkgym.trainers.interrupt import stop_on_signal


def test_ctrl_c_while_episodes_are_played(tmp_path: Path) -> None:
    out, state = tmp_path / "run", tmp_path / "state"
    state.mkdir(mode=0o700)
    command = [
        sys.executable, "-m", "forkgym.trainers.grpo", "--recipe", "grpo-tiny",
        f"out={out}", "model={name: tiny-random, dtype: float32}", "env.tasks=swe/tiny/clamp/*", "eval={every: null}",
        "rollout={groups: 8, group_size: 8, concurrency: 4}", "sampling={max_tokens: 64, context: 4096}", "steps=3",
    ]  # fmt: skip
    environment = {**os.environ, "FORKGYM_STATE": str(state), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as run:
        first = out / "episodes" / "train-000001.jsonl"
        while run.poll() is None and not (first.exists() and first.read_bytes().count(b"\n")):
            time.sleep(0.02)
        run.send_signal(signal.SIGINT)
        _, error = run.communicate()
    assert run.returncode == 130, error
    assert error.startswith("InterruptedTraining: stopped after step 0 of 3")
    assert len(error.splitlines()) == 1
    assert find(out).name == "step-000000"
    assert b'"status":"cancelled"' in first.read_bytes()
    assert list((state / "boxes").iterdir()) == []
    assert str(state) not in Path("/proc/mounts").read_text()


def test_a_second_signal_stops_at_once() -> None:
    with stop_on_signal() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_signals_belong_to_the_main_thread() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[bool] = []

    def work() -> None:
        with stop_on_signal() as stop:
            seen.append(stop.is_set() or signal.getsignal(signal.SIGINT) is not before)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]

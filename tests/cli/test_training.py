"""Events of a training run, as a watcher sees them."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from forkgym.agents.base import Episode
from forkgym.cli.live import LiveView
from forkgym.cli.training import TrainingView, sentence
from forkgym.trainers.events import EpisodeEnded, EvalEnded, PhaseStarted, RunEnded, RunStarted, StepEnded


def watched() -> tuple[LiveView, TrainingView]:
    view = LiveView("t", [("train", "Training")], Console(file=io.StringIO(), width=200))
    return view, TrainingView(view, "train")


def episode(resolved: bool) -> Episode:
    return Episode("a#0", "swe/a", "g", "bash", 0, "finished", verdict={"resolved": resolved}, reward=float(resolved))


def test_a_run_from_start_to_end() -> None:
    view, show = watched()
    phase = view.phases["train"]
    show(RunStarted("grpo", 0, 4, Path("out"), "loss ..."))
    assert (phase.state, phase.total) == ("running", 4)
    show(PhaseStarted(0, "eval", 10))
    show(EvalEnded(0, {"pass_rate": 0.25}))
    show(PhaseStarted(1, "rollout", 8))
    show(EpisodeEnded(1, episode(True), 4))
    assert phase.note == "step 1 · playing 4/8 · held-out 25%"
    assert 0 < phase.done < 1
    assert view.last == "swe/a · solved in 0 turns"
    show(StepEnded(1, {"reward": 0.5}))
    assert (phase.done, phase.curve) == (1, [0.5])
    show(PhaseStarted(2, "train"))
    assert "reward 0.50" in phase.note
    show(RunEnded(4, "done", Path("out")))
    assert (phase.state, phase.note) == ("done", "reward 0.50 · held-out 25%")


def test_demonstrations_are_played_before_the_first_step() -> None:
    view, show = watched()
    phase = view.phases["train"]
    show(PhaseStarted(0, "rollout", 20))
    show(EpisodeEnded(0, episode(True), 5))
    assert (phase.state, phase.done, phase.total, phase.note) == ("running", 5, 20, "playing 5/20")
    show(RunStarted("sft", 0, 6, Path("out"), ""))
    show(StepEnded(1, {"loss": 1.25}))
    assert (phase.done, phase.total) == (1, 6)
    assert "loss 1.250" in phase.note
    assert phase.curve == []


def test_a_run_out_of_time_says_so() -> None:
    view, show = watched()
    show(RunStarted("grpo", 2, 9, Path("out"), ""))
    show(RunEnded(5, "time", Path("out")))
    assert view.phases["train"].note == "stopped by time at step 5 of 9"


def test_sentence_tells_failure_from_a_wrong_answer() -> None:
    failed = Episode("a#0", "swe/a", "g", "bash", 0, "failed", "sandbox")
    assert sentence(failed) == "swe/a · failed (sandbox) in 0 turns"
    assert sentence(episode(False)) == "swe/a · not solved in 0 turns"

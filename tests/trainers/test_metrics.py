"""Numbers of a run, worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from forkgym.agents.base import Episode, Step
from forkgym.trainers.metrics import (
    Clock,
    MetricLog,
    episode_metrics,
    mismatch_metrics,
    read_metrics,
    time_metrics,
    update_metrics,
)
from forkgym.trainers.update import TokenStats, Update

MakeEpisode = Callable[..., Episode]


def test_rates_count_scored_episodes_and_failures_count_attempts(make_episode: MakeEpisode) -> None:
    turns = [[([1], [4, 5])]]
    won = make_episode("a", turns, reward=1.0)
    won.verdict = {"resolved": True, "hacks": ["edited the tests"]}
    lost = make_episode("b", turns, reward=0.0, status="truncated", reason="turns")
    died = make_episode("c", turns, reward=None, status="failed", reason="sandbox")
    result = episode_metrics([won, lost, died], [won, lost, died, died])
    assert result == {
        "episodes": 3,
        "scored": 2,
        "reward": 0.5,
        "pass_rate": 0.5,
        "truncated_rate": 0.5,
        "turns": 0.0,
        "duplicate_rate": 0.5,
        "tokens_per_episode": 2.0,
        "hack_rate": 0.5,
        "failure_rate": 0.5,
        "failure_rate/sandbox": 0.5,
        "sampled_tokens": 8,
    }


def test_nothing_scored_has_no_reward() -> None:
    assert "reward" not in episode_metrics([], [])


def test_the_models_share_of_the_time(make_episode: MakeEpisode) -> None:
    episode = make_episode("a", [[([1], [4, 5])]])
    episode.steps = [Step(0, "", {}, "", 0.0, seconds=1.0)]
    clock = Clock()
    clock.seconds = {"rollout": 8.0, "train": 2.0}
    result = time_metrics([episode], clock, 6.0)
    assert result["model_share"] == pytest.approx(0.8)
    assert result["tokens_per_second"] == 2 / 8
    assert result["seconds/env"] == 1.0


def test_mismatch_between_trainer_and_sampler() -> None:
    train, behaviour = torch.tensor([0.2, 0.4]).log(), torch.tensor([0.4, 0.4]).log()
    result = mismatch_metrics(train, behaviour)
    assert result["mismatch/mean_abs"] == pytest.approx(math.log(2) / 2)
    assert result["mismatch/max_abs"] == pytest.approx(math.log(2))
    assert result["mismatch/ess"] == pytest.approx(1.5**2 / (1.25 * 2))
    assert "mismatch/correlation" not in result
    line = mismatch_metrics(torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([-2.0, -4.0, -6.0]))
    assert line["mismatch/correlation"] == pytest.approx(1.0)


def test_updates_are_averaged_and_skipped_ones_counted() -> None:
    stats = TokenStats(
        logp=[torch.tensor([-1.0]), torch.tensor([-2.0])],
        behaviour=[torch.tensor([-1.0]), torch.tensor([-2.0])],
        ratio=[torch.tensor([1.0]), torch.tensor([2.0])],
        clipped=[torch.tensor([False]), torch.tensor([True])],
        entropy=[torch.tensor([0.5]), torch.tensor([1.5])],
    )
    result = update_metrics([Update(2.0, 3.0, stats), Update(0.0, None, TokenStats())])
    assert result["updates"] == 1
    assert result["loss"] == 1.0
    assert result["grad_norm"] == 3.0
    assert result["ratio_mean"] == 1.5
    assert result["ratio_max"] == 2.0
    assert result["clip_fraction"] == 0.5
    assert result["entropy"] == 1.0
    assert update_metrics([]) == {"updates": 0}


def test_rows_of_steps_to_come_are_removed_on_resume(tmp_path: Path) -> None:
    log = MetricLog(tmp_path, 0)
    for step in (1, 2, 3):
        log.write("train", step, {"reward": step / 10})
    log.close()
    with log.path.open("a") as file:
        file.write('{"kind": "tr')
    MetricLog(tmp_path, 2).close()
    assert [(row["step"], row["reward"]) for row in read_metrics(tmp_path)] == [(1, 0.1), (2, 0.2)]
    assert list((tmp_path / "tensorboard").iterdir())

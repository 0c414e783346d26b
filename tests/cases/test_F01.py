"""F01: equal rewards give exactly zero, whatever their rounding; a leave-one-out singleton stays unscaled."""

from __future__ import annotations

import pytest
import torch

from forkgym.trainers.advantages import group_advantage, has_signal
from forkgym.trainers.kinds import Baseline, StdKind

CASES: list[tuple[Baseline, StdKind]] = [
    ("mean", "sample"),
    ("mean", "population"),
    ("mean", "none"),
    ("loo", "none"),
    ("loo", "loo"),
]


@pytest.mark.parametrize(("count", "reward"), [(12, 0.7), (10, 0.1), (9, 0.3), (8, 1.0), (8, 0.0)])
@pytest.mark.parametrize(("baseline", "std"), CASES)
@pytest.mark.parametrize("eps", [0.0, 1e-6])
def test_equal_rewards(count: int, reward: float, baseline: Baseline, std: StdKind, eps: float) -> None:
    rewards = torch.full((count,), reward, dtype=torch.float32)
    group = torch.zeros(count, dtype=torch.int64)
    values = group_advantage(rewards, group, baseline=baseline, std=std, eps=eps, tolerance=0.0)
    assert values.tolist() == [0.0] * count
    assert not has_signal(rewards, group, 0.0).any()


def test_leave_one_out_singleton() -> None:
    rewards = torch.tensor([0.35] * 7 + [0.0], dtype=torch.float32)
    group = torch.zeros(8, dtype=torch.int64)
    values = group_advantage(rewards, group, baseline="loo", std="loo", eps=0.0, tolerance=0.0)
    assert values[-1].item() == pytest.approx(-0.35, abs=1e-6)

"""F09: an episode that infrastructure failed is no member of its group, and its reason is counted."""

from __future__ import annotations

import pytest
import torch

from forkgym.agents.base import Completion, Episode, Segment
from forkgym.trainers.advantages import group_advantage
from forkgym.trainers.batch import build_batch, group_of_members, keep_trainable


def episode(name: str, reward: float | None) -> Episode:
    segment = Segment()
    segment.append_prompt([1, 2], 0)
    segment.append_completion(Completion((3,), (-0.5,), "stop"), 0)
    if reward is None:
        return Episode(name, "t", "g", "test", 0, "failed", "sandbox", segments=[segment])
    return Episode(name, "t", "g", "test", 0, "finished", segments=[segment], reward=reward)


def test_dead_sandbox_is_excluded() -> None:
    kept = keep_trainable([episode("a", 1.0), episode("b", 1.0), episode("c", 0.0), episode("d", None)])
    batch = build_batch(kept.episodes)
    values = group_advantage(
        batch.reward, group_of_members(batch), baseline="mean", std="sample", eps=1e-4, tolerance=1e-4
    )
    assert batch.episodes == ["a", "b", "c"]
    assert values.tolist() == pytest.approx([0.577250, 0.577250, -1.154501], abs=1e-6)
    assert kept.left_out == {"failed(sandbox)": 1}
    assert batch.reward.dtype == torch.float64

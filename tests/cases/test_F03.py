"""F03: tool tokens are no steps of generalised advantage estimation."""

from __future__ import annotations

import pytest
import torch

from forkgym.trainers.advantages import gae


def test_reward_does_not_decay_across_observations() -> None:
    mask = torch.tensor([[1, 1, 0, 0, 0, 1, 1]], dtype=torch.bool)
    reward = torch.tensor([[0.0, 0, 0, 0, 0, 0, 1]])
    result = gae(reward, torch.zeros(1, 7), mask, gamma=1.0, lam=0.9)
    assert result[0].tolist() == pytest.approx([0.729, 0.81, 0, 0, 0, 0.9, 1.0])

"""F11: mean and deviation are the group's, not the batch's."""

from __future__ import annotations

import pytest
import torch

from forkgym.trainers.advantages import group_advantage


def test_two_groups() -> None:
    values = group_advantage(
        torch.tensor([1.0, 0, 1, 1]), torch.tensor([0, 0, 1, 1]), baseline="mean", std="sample", eps=1e-4, tolerance=0.0
    )
    assert values.tolist() == pytest.approx([0.707007, -0.707007, 0, 0], abs=1e-6)

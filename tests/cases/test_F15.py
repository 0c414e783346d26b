"""F15: the rule for a token rejected by an off-policy filter is stated and consistent.

The reward belongs to the episode, not to a token: a rejected token loses its own gradient and nothing else moves. The
group's advantages stay those of the full group, and the other tokens of the sample keep theirs.
"""

from __future__ import annotations

import pytest
import torch

from forkgym.trainers.advantages import group_advantage
from forkgym.trainers.objectives import correction_weights, token_weights


def test_a_rejected_last_token_loses_only_itself() -> None:
    rewards, group = torch.tensor([1.0, 0, 0, 0]), torch.zeros(4, dtype=torch.int64)
    values = group_advantage(rewards, group, baseline="mean", std="none", eps=0.0, tolerance=0.0)
    mask = torch.ones(4, 2, dtype=torch.bool)
    log_weight = torch.zeros(4, 2)
    log_weight[0, 1] = 3.0
    member = torch.arange(4)
    correction = correction_weights(
        log_weight[mask], member.repeat_interleave(2), kind="icepop", level="token", low=0.5, high=5.0
    )
    signal = values.repeat_interleave(2) * correction * token_weights(mask, member, "token_mean")[mask]
    assert signal.tolist() == pytest.approx([0.75 / 8, 0.0] + [-0.25 / 8] * 6)

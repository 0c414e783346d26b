"""F16: a KL penalty counts tokens of the policy, not of tools."""

from __future__ import annotations

import pytest
import torch

from forkgym.trainers.objectives import kl_penalty, token_weights


def test_tool_tokens_do_not_count() -> None:
    logp = torch.tensor([[0.1, 0.2, 5.0, 0.3]])
    mask = torch.tensor([[True, True, False, True]])
    weights = token_weights(mask, torch.zeros(1, dtype=torch.int64), "token_mean")
    penalty = kl_penalty(logp[mask], torch.zeros(3), "k1")
    assert (penalty * weights[mask]).sum().item() == pytest.approx(0.2)

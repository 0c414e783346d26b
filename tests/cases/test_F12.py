"""F12: the loss and its gradient do not depend on how the batch is cut into micro-batches."""

from __future__ import annotations

import pytest
import torch

from forkgym.trainers.objectives import token_weights


@pytest.mark.parametrize("micro_batch", [2, 1])
def test_token_mean(micro_batch: int) -> None:
    losses = torch.tensor([[4.0, 2, 0, 0], [1, 1, 1, 1]], requires_grad=True)
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
    weights = token_weights(mask, torch.arange(2), "token_mean")
    total = 0.0
    for start in range(0, 2, micro_batch):
        part = slice(start, start + micro_batch)
        loss = (losses[part][mask[part]] * weights[part][mask[part]]).sum()
        loss.backward()
        total += loss.item()
    assert total == pytest.approx(1.666667, abs=1e-6)
    assert losses.grad is not None
    assert losses.grad[mask].tolist() == pytest.approx([1 / 6] * 6, abs=1e-6)
    assert losses.grad[~mask].tolist() == [0.0, 0.0]

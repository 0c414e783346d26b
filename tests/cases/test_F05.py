"""F05: a cut-off takes the value of the state after it; a real end does not, even at the limit."""

from __future__ import annotations

import pytest
import torch

from forkgym.trainers.advantages import gae


@pytest.mark.parametrize(
    ("terminated", "expected"),
    [(False, [1.246254, 1.220897, 1.195]), (True, [0.808407, 0.755350, 0.7])],
)
def test_bootstrap(terminated: bool, expected: list[float]) -> None:
    result = gae(
        torch.tensor([[0.0, 0.0, 1.0]]),
        torch.tensor([[0.1, 0.2, 0.3]]),
        torch.ones(1, 3, dtype=torch.bool),
        gamma=0.99,
        lam=0.95,
        final_value=torch.tensor([0.5]),
        terminated=torch.tensor([terminated]),
    )
    assert result[0].tolist() == pytest.approx(expected, abs=1e-5)

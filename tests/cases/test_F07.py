"""F07: nothing left to train on is a step that changes nothing; a denominator counts what the numerator counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from forkgym.agents.collect import Job
from forkgym.trainers import grpo
from forkgym.trainers.checkpoint import find
from forkgym.trainers.metrics import read_metrics
from forkgym.trainers.objectives import token_weights
from forkgym.trainers.recipe import GrpoRecipe
from forkgym.trainers.token_game import Rule, TokenGame


def failed(job: Job, ids: Sequence[int]) -> None:
    return None


def equal(job: Job, ids: Sequence[int]) -> float:
    return 0.7


@pytest.mark.parametrize(("rule", "trained"), [(failed, 0), (equal, 8)])
def test_a_step_without_signal_is_a_no_op(tmp_path: Path, rule: Rule, trained: int) -> None:
    weights: list[bytes] = []
    for steps, resume in ((1, False), (2, True)):
        recipe = GrpoRecipe.model_validate(
            {
                "algorithm": "grpo",
                "model": {"name": "tiny-random", "dtype": "float32"},
                "rollout": {"groups": 2, "group_size": 4},
                "optimizer": {"lr": 1.0, "weight_decay": 0.1},
                "eval": {"every": None},
                "steps": steps,
                "out": str(tmp_path),
            }
        )
        grpo.run(recipe, resume=resume, player=lambda language: TokenGame(language.model, rule))
        weights.append((find(tmp_path) / "weights.safetensors").read_bytes())
    assert weights[0] == weights[1]
    for row in read_metrics(tmp_path):
        assert (row["updates"], row["trained_episodes"], row["zero_signal_groups"]) == (0, trained, 2)
        assert all(math.isfinite(value) for value in row.values() if isinstance(value, float))


def test_masked_tokens_leave_the_denominator() -> None:
    losses = torch.tensor([[1.0, 1, 1, 1, 5, 5]])
    mask = torch.tensor([[True, True, True, True, False, False]])
    weights = token_weights(mask, torch.zeros(1, dtype=torch.int64), "token_mean")
    assert (losses * weights).sum().item() == 1.0

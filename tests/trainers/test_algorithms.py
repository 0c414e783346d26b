"""docs/algorithms.md says of every registered name what the code does, and names tests that exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest
import torch

from forkgym.trainers.kinds import LOSS_OPTIONS, PER_EPISODE_LOSSES, PolicyLoss
from forkgym.trainers.loss_sections import ESTIMATORS, ObjectiveSection
from forkgym.trainers.policy_losses import Tokens, given_by_update, policy_loss

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "algorithms.md").read_text()


def table(heading: str) -> dict[str, list[str]]:
    """The rows of the table under a heading, by their first cell."""
    part = PAGE.split(f"## {heading}", 1)[1].split("\n## ", 1)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("|")]
    found = {row[0].strip("`"): row for row in rows[2:]}
    assert len(found) == len(rows) - 2, "a name has two rows"
    return found


LOSSES = table("Losses")


@functools.cache
def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_registered_name_has_a_row() -> None:
    assert list(table("Estimators")) == list(ESTIMATORS)
    assert list(LOSSES) == list(LOSS_OPTIONS)


def test_every_fixture_and_check_has_a_row() -> None:
    numbers = [re.match(r"(F|Check )(\d+) ", what) for what in table("Fixtures and checks")]
    assert [found.group(1) + found.group(2) for found in numbers if found] == [
        *(f"F{n}" for n in range(1, 13)),
        *(f"Check {n}" for n in range(1, 16)),
    ]


def test_every_test_that_is_named_exists() -> None:
    for heading in ("Estimators", "Losses", "Fixtures and checks"):
        for name, row in table(heading).items():
            path, test = row[-1].strip("`").split("::")
            assert test in functions(path), f"{name}: {path} has no {test}"


@pytest.mark.parametrize("loss", LOSS_OPTIONS)
def test_options_and_aggregation_are_those_of_the_code(loss: PolicyLoss) -> None:
    row = LOSSES[loss]
    told = {name: None if value == "none" else float(value) for name, value in re.findall(r"`(\w+)` ([\w.]+)", row[3])}
    assert told == dict(LOSS_OPTIONS[loss])
    assert row[4] == ObjectiveSection(loss=loss).weighting


@pytest.mark.parametrize("loss", LOSS_OPTIONS)
def test_the_level_of_the_ratio_is_measured(loss: PolicyLoss) -> None:
    """Move one token's old log-probability, and see whether its loss changes, and that of its neighbour."""

    def losses(moved: float, push: float) -> torch.Tensor:
        logp, advantage = torch.tensor([-1.05, -1.05]), torch.full((2,), push)
        tokens = Tokens(logp, torch.tensor([-1.0 + moved, -1.0]), advantage)
        given = given_by_update(loss, tokens, torch.zeros(2, dtype=torch.int64), LOSS_OPTIONS[loss])
        return policy_loss(loss, Tokens(logp, tokens.old, advantage, given), LOSS_OPTIONS[loss])[0]

    changed = torch.stack([losses(-0.02, push) != losses(0.0, push) for push in (1.0, -1.0)]).any(0)
    assert {(False, False): "none", (True, False): "token", (True, True): "episode"}[
        (bool(changed[0]), bool(changed[1]))
    ] == LOSSES[loss][2]
    assert LOSSES[loss][2] != "episode" or loss in PER_EPISODE_LOSSES

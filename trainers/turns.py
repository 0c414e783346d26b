"""Turns of episodes as things to compare: which of a group began in the same state (GiGPO)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from forkgym.agents.base import Episode
from forkgym.trainers.advantages import turn_advantage
from forkgym.trainers.base import Batch
from forkgym.trainers.errors import TrainerError
from forkgym.trainers.loss_sections import AdvantageSection


def anchored(batch: Batch, episodes: Sequence[Episode], section: AdvantageSection) -> Tensor:
    """The advantage of each trained token's turn among the turns of its group that began alike, float32 [B, T].

    Two turns began alike if the observation before them was the same text; all first turns of a group did. Raises
    ``TrainerError`` for an episode of several turns that recorded no observations.
    """
    counts = [_turns(batch, member) for member in range(len(episodes))]
    anchors: dict[tuple[str, str], int] = {}
    rows: list[tuple[float, int, int]] = []
    for episode, reward, count in zip(episodes, map(float, batch.reward), counts, strict=True):
        for turn in range(count):
            anchor = anchors.setdefault((episode.group, _before(episode, turn)), len(anchors))
            rows.append((reward, count - 1 - turn, anchor))
    if not rows:
        return torch.zeros(batch.mask.shape)
    final, left, anchor = map(torch.tensor, zip(*rows, strict=True))
    each = turn_advantage(
        final, left, anchor, gamma=section.discount, std=section.std_kind, eps=section.eps, tolerance=section.tolerance
    )
    first = torch.tensor([0, *counts]).cumsum(0)[batch.member]
    index = (first[:, None] + batch.turn).clamp(max=len(rows) - 1)
    return torch.where(batch.mask, each.to(torch.float32)[index], 0.0)


def _turns(batch: Batch, member: int) -> int:
    rows = batch.member == member
    return int(batch.turn[rows][batch.mask[rows]].max()) + 1


def _before(episode: Episode, turn: int) -> str:
    if turn == 0:
        return "the instruction"
    seen = [step.observation for step in episode.steps if step.turn < turn]
    if not seen:
        raise TrainerError(
            f"episode {episode.id!r} has {turn + 1} or more turns but no record of what was observed, which gigpo "
            "compares; use an agent that records its steps, or another estimator"
        )
    return f"observed: {seen[-1]}"

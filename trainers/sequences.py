"""Trained tokens as one sequence per episode, in the order they were sampled, whatever segments they lie in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor

from forkgym.agents.base import Episode
from forkgym.trainers.advantages import gae
from forkgym.trainers.base import Batch
from forkgym.trainers.loss_sections import GaeSection


@dataclass(frozen=True)
class Sequences:
    """M episodes of at most L trained tokens; the batch has N of them, flat in row-major order of its mask.

    - ``order``    int64 [M, L]  which flat token stands here; 0 where none does
    - ``present``  bool  [M, L]  True where one does
    - ``turn``     int64 [M, L]  its turn
    """

    order: Tensor
    present: Tensor
    turn: Tensor

    @classmethod
    def of(cls, batch: Batch) -> Sequences:
        """The trained tokens of a batch by episode, then turn, then place."""
        rows, columns = batch.mask.nonzero(as_tuple=True)
        member, turn = batch.member[rows], batch.turn[rows, columns]
        by_turn = turn.argsort(stable=True)
        flat = by_turn[member[by_turn].argsort(stable=True)]
        counts = torch.bincount(member, minlength=batch.reward.numel())
        width = int(counts.max()) if counts.numel() else 0
        present = torch.arange(width)[None] < counts[:, None]
        order = torch.zeros(present.shape, dtype=torch.int64)
        order[present] = flat
        return cls(order, present, torch.where(present, turn[order] if turn.numel() else order, -1))

    def take(self, flat: Tensor) -> Tensor:
        """Values [N] as [M, L], 0 where there is no token."""
        return torch.where(self.present, flat[self.order], 0.0) if flat.numel() else torch.zeros(self.order.shape)

    def put(self, values: Tensor) -> Tensor:
        """Values [M, L] as [N]."""
        flat = torch.zeros(int(self.present.sum()), dtype=values.dtype)
        flat[self.order[self.present]] = values[self.present]
        return flat

    def actions(self, level: str) -> Tensor:
        """Bool [M, L]: where an action begins, at each token or at the first of each turn."""
        if level == "token":
            return self.present
        before = torch.cat([torch.full_like(self.turn[:, :1], -1), self.turn[:, :-1]], 1)
        return self.present & (self.turn != before)

    def last(self) -> Tensor:
        """Bool [M, L]: the last token of each turn."""
        after = torch.cat([self.turn[:, 1:], torch.full_like(self.turn[:, :1], -1)], 1)
        return self.present & (self.turn != after)


def rewards(sequences: Sequences, batch: Batch, episodes: list[Episode], kind: str) -> Tensor:
    """Float32 [M, L]: the episode's reward at its last token (``final``), or each turn's at the turn's (``turns``).

    With ``turns``, what the environment gave in a turn without trained tokens counts for the last one before it.
    """
    result = torch.zeros(sequences.order.shape)
    for row, episode in enumerate(episodes):
        ends = cast("list[int]", sequences.last()[row].nonzero()[:, 0].tolist())
        if not ends:
            continue
        if kind == "final":
            result[row, ends[-1]] = float(batch.reward[row])
            continue
        turns = [int(sequences.turn[row, end]) for end in ends]
        for step in episode.steps:
            place = sum(turn <= step.turn for turn in turns) - 1
            result[row, ends[max(place, 0)]] += step.reward
    return result


@dataclass(frozen=True)
class Estimates:
    """Flat [N]: ``advantage`` of each trained token, ``target`` of its value, and ``valued``: where there is one."""

    advantage: Tensor
    target: Tensor
    valued: Tensor


def estimate(
    sequences: Sequences, reward: Tensor, value: Tensor, section: GaeSection, final_value: Tensor | None = None
) -> Estimates:
    """Advantages and value targets by GAE; ``reward`` [M, L], ``value`` [N], ``final_value`` [M] of cut-off episodes.

    The policy's advantage and the critic's target may have different lambdas (arXiv 2503.01491); with ``alpha`` the
    policy's is 1 - 1 / max(alpha * L, 1) for L actions (arXiv 2504.05118). At turn level every token of a turn has the
    turn's advantage, and only its first one a value.
    """
    actions, values = sequences.actions(section.level), sequences.take(value)
    lam: float | Tensor = 0.95 if section.lam is None else section.lam
    if section.alpha is not None:
        lam = 1 - 1 / (section.alpha * actions.sum(1)).clamp(min=1)
    recursion = partial(gae, reward, values, actions, gamma=section.gamma, final_value=final_value)
    advantage, target = recursion(lam=lam), recursion(lam=section.critic_lam) + values
    begun = torch.where(actions, torch.arange(actions.shape[1])[None], 0).cummax(1).values
    spread = advantage.gather(1, begun)
    return Estimates(sequences.put(spread), sequences.put(target), sequences.put(actions.to(torch.uint8)).bool())

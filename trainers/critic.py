"""The critic: the value of a state from the trajectory so far and, where it is given some, privileged numbers.

A value may read whatever no later action decides; then it is a baseline without bias. So inputs describe the state
before the turn, and hidden states those before the token. What an episode came to is a target only.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from forkgym.agents.base import Episode
from forkgym.agents.models import LanguageModel
from forkgym.trainers.base import Batch
from forkgym.trainers.batch import micro_batches, select_rows
from forkgym.trainers.errors import TrainerError
from forkgym.trainers.kinds import PrivilegedInput
from forkgym.trainers.logprobs import hidden_states
from forkgym.trainers.models import choose_trained
from forkgym.trainers.objectives import require_finite
from forkgym.trainers.sections import CriticSection
from forkgym.trainers.sequences import Estimates
from forkgym.trainers.update import Scorer, autocast, finish


class Critic(nn.Module):
    """``V = head(W h + U x)`` from hidden states h [N, D] and inputs x [N, K]; 0 everywhere before it has learned.

    ``trunk`` is the critic's own, or ``None``. With ``hindsight`` a second output learns the episode's reward.
    """

    def __init__(self, width: int, inputs: int, hidden: int, trunk: Any = None, hindsight: bool = False) -> None:
        super().__init__()
        self.trunk = trunk
        self.norm = nn.LayerNorm(width)
        self.read = nn.Linear(width, hidden)
        self.know = nn.Linear(inputs, hidden, bias=False) if inputs else None
        self.value = nn.Linear(hidden, 1)
        self.outcome = nn.Linear(hidden, 1) if hindsight else None
        nn.init.zeros_(self.value.weight)
        nn.init.zeros_(self.value.bias)

    def forward(self, hidden: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """Values [N], and with hindsight the expected reward [N]."""
        features = self.read(self.norm(hidden.float()))
        if self.know is not None:
            features = features + self.know(inputs)
        features = nn.functional.gelu(features)
        return self.value(features)[:, 0], None if self.outcome is None else self.outcome(features)[:, 0]


def make_critic(language: LanguageModel, section: CriticSection, seed: int) -> Critic:
    """The critic of a recipe; ``seed`` decides its weights. Raises ``ConfigError`` as ``choose_trained`` does."""
    trunk: Any = None
    if section.trunk == "own":
        trunk = copy.deepcopy(language.model.base_model)
        choose_trained(trunk, section.train_layers)
    width = int(language.model.config.hidden_size)
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return Critic(width, inputs_of(section), section.hidden, trunk, section.hindsight is not None)


def inputs_of(section: CriticSection) -> int:
    """How many numbers the critic reads beside the trajectory: the named ones, and one that says if they are known."""
    return len(section.inputs) + 1 if section.inputs else 0


def privileged_inputs(batch: Batch, episodes: Sequence[Episode], names: Sequence[PrivilegedInput]) -> Tensor:
    """What was known before the turn of each trained token, flat [N, K + 1]; the last number is 1 where it was known.

    Counts are given as log(1 + count). Raises ``TrainerError`` if an episode recorded nothing at all.
    """
    rows, columns = batch.mask.nonzero(as_tuple=True)
    if not names:
        return torch.zeros(rows.numel(), 0)
    for episode in episodes:
        if episode.segments and not episode.privileged:
            raise TrainerError(
                f"episode {episode.id!r} has no privileged record, but the critic has inputs; its agent "
                f"{episode.harness!r} must take the option privileged, as bash and tools do"
            )
    tables = [[_numbers(block, names) for block in episode.privileged] for episode in episodes]
    unknown = [0.0] * (len(names) + 1)
    members, turns = (cast("list[int]", x.tolist()) for x in (batch.member[rows], batch.turn[rows, columns]))
    found = [
        tables[member][turn] if turn < len(tables[member]) else unknown
        for member, turn in zip(members, turns, strict=True)
    ]
    return torch.tensor(found, dtype=torch.float32).reshape(len(found), len(unknown))


def _numbers(block: Any, names: Sequence[PrivilegedInput]) -> list[float]:
    known: dict[str, float] = {
        "fraction": block["fraction"],
        "score": block["score"],
        "resolved": float(block["resolved"]),
        "failed": math.log1p(len(block["failed"])),
        "files_changed": math.log1p(block["files_changed"]),
        "gold_distance": 1.0 if block["gold_distance"] is None else block["gold_distance"],
    }
    return [*(float(known[name]) for name in names), 1.0]


def states(
    trunk: Any, batch: Batch, dtype: torch.dtype, micro_batch_tokens: int, ends: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Hidden states before each trained token, flat [N, D], and after the last token of the rows ``ends``: [E, D].

    No gradient flows into ``trunk``.
    """
    flat = torch.zeros(batch.mask.shape, dtype=torch.int64)
    flat[batch.mask] = torch.arange(int(batch.mask.sum()))
    width = int(trunk.config.hidden_size)
    before = torch.zeros(int(batch.mask.sum()), width)
    after = torch.zeros(0 if ends is None else ends.numel(), width)
    with torch.no_grad(), autocast(dtype):
        for rows in micro_batches(batch.ids, batch.lengths, micro_batch_tokens):
            part = select_rows(batch, rows)
            if bool(part.mask.any()):
                inside, columns = part.mask.nonzero(as_tuple=True)
                before[flat[rows][:, : part.mask.shape[1]][part.mask]] = hidden_states(
                    trunk, part.ids, inside, columns - 1
                ).float()
        if ends is not None and ends.numel():
            part = select_rows(batch, ends)
            after = hidden_states(trunk, part.ids, torch.arange(ends.numel()), part.lengths - 1).float()
    return before, after


@dataclass(frozen=True)
class CriticUpdate:
    """What one update did."""

    loss: float
    grad_norm: float


def critic_update(
    critic: Critic,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    hidden: Tensor | None,
    inputs: Tensor,
    old: Tensor,
    found: Estimates,
    section: CriticSection,
    scorer: Scorer,
) -> CriticUpdate:
    """One update on all valued tokens of the step: the mean of half the squared error, clipped as in PPO.

    ``hidden`` [N, D] are the states of a shared trunk; ``None`` computes those of the critic's own, with gradient.
    ``old`` [N] are the values before the step. Micro-batches of any size add up to the same loss and gradient. Raises
    ``NonFiniteError``.
    """
    reward = _spread_rewards(batch)
    count = int(found.valued.sum())
    total = 0.0
    optimizer.zero_grad()
    flat = torch.zeros(batch.mask.shape, dtype=torch.int64)
    flat[batch.mask] = torch.arange(old.numel())
    everything = [list(range(len(batch.lengths)))]
    parts = everything if hidden is not None else scorer.parts(batch, torch.arange(len(batch.lengths)))
    for rows in parts:
        part = select_rows(batch, rows)
        index = flat[rows][:, : part.mask.shape[1]][part.mask]
        if hidden is not None:
            seen = hidden[index]
        else:
            inside, columns = part.mask.nonzero(as_tuple=True)
            with autocast(scorer.dtype):
                seen = hidden_states(critic.trunk, part.ids, inside, columns - 1)
        value, outcome = critic(seen, inputs[index])
        require_finite(value.detach(), part.member.repeat_interleave(part.mask.sum(1)), batch.episodes, "value")
        error = value_loss(value, old[index], found.target[index], section.clip)
        if outcome is not None and section.hindsight is not None:
            error = error + section.hindsight * (outcome - reward[index]).square() / 2
        loss = error[found.valued[index]].sum() / max(count, 1)
        loss.backward()
        total += loss.item()
    return CriticUpdate(total, finish(optimizer, section.optimizer.max_grad_norm))


def value_loss(value: Tensor, old: Tensor, target: Tensor, clip: float | None) -> Tensor:
    """Per token [N]: ``max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2) / 2``."""
    error = (value - target).square()
    if clip is not None:
        moved = old + (value - old).clamp(-clip, clip)
        error = torch.maximum(error, (moved - target).square())
    return error / 2


def explained_variance(target: Tensor, value: Tensor) -> float:
    """``1 - Var(target - value) / Var(target)``; 0 where the targets do not differ."""
    if target.numel() < 2 or float(target.var()) == 0:
        return 0.0
    return 1.0 - float((target - value).var() / target.var())


def _spread_rewards(batch: Batch) -> Tensor:
    return batch.reward.to(torch.float32)[batch.member[batch.mask.nonzero(as_tuple=True)[0]]]

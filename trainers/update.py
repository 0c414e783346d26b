"""One optimizer update on one batch: score, weigh, clip, step. Shared by the trainers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from math import cos, pi
from typing import Any

import torch
from torch import Tensor

from forkgym.trainers.base import Batch
from forkgym.trainers.batch import micro_batches, select_rows
from forkgym.trainers.errors import NonFiniteError
from forkgym.trainers.logprobs import token_logprobs
from forkgym.trainers.loss_sections import ObjectiveSection
from forkgym.trainers.objectives import (
    correction_weights,
    kl_penalty,
    log_ratio,
    require_finite,
    token_weights,
)
from forkgym.trainers.policy_losses import Tokens, given_by_update, policy_loss
from forkgym.trainers.recipe import OnlineRecipe
from forkgym.trainers.sections import OptimizerSection


def make_optimizer(model: Any, section: OptimizerSection) -> torch.optim.AdamW:
    """AdamW over the weights that are trained; decay applies to matrices only, not to norms and biases."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.dim() > 1], "weight_decay": section.weight_decay},
        {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=section.lr, betas=section.betas, eps=section.eps, fused=True)


def learning_rate(section: OptimizerSection, step: int, steps: int) -> float:
    """The rate of step ``step`` (from 1): a linear warm-up, then the schedule, which reaches 0 after the last step."""
    if step <= section.warmup_steps:
        return section.lr * step / (section.warmup_steps + 1)
    done = (step - 1 - section.warmup_steps) / max(1, steps - section.warmup_steps)
    factor = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + cos(pi * done)) / 2}[section.schedule]
    return section.lr * factor


def set_learning_rate(optimizer: torch.optim.Optimizer, section: OptimizerSection, step: int, steps: int) -> float:
    """Let ``optimizer`` use the rate of step ``step``, and return it."""
    rate = learning_rate(section, step, steps)
    for group in optimizer.param_groups:
        group["lr"] = rate
    return rate


def autocast(dtype: torch.dtype) -> AbstractContextManager[Any]:
    """Matrix products in ``dtype``, weights and the rest in float32."""
    return torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32)


@dataclass
class Scorer:
    """Log-probabilities of a model as the trainer computes them."""

    model: Any
    dtype: torch.dtype
    temperature: float
    micro_batch_tokens: int

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy of each trainable token, flat [N]."""
        with autocast(self.dtype):
            return token_logprobs(self.model, batch.ids, batch.mask, temperature=self.temperature)

    def parts(self, batch: Batch, rows: Tensor) -> list[list[int]]:
        """Row numbers of the micro-batches of some rows."""
        cut = micro_batches(batch.ids[rows], batch.lengths[rows], self.micro_batch_tokens)
        return [rows[part].tolist() for part in cut]

    @torch.no_grad()
    def whole(self, batch: Batch, rows: Tensor | None = None) -> Tensor:
        """Log-probabilities [B, T] of all rows, or those given; 0 where not trainable."""
        result = torch.zeros(batch.mask.shape)
        for numbers in self.parts(batch, torch.arange(len(batch.lengths)) if rows is None else rows):
            part = select_rows(batch, numbers)
            scattered = torch.zeros(part.mask.shape)
            scattered[part.mask] = self(part)[0]
            result[numbers, : scattered.shape[1]] = scattered
        return result


@dataclass
class TokenStats:
    """Detached numbers of trained tokens, micro-batch by micro-batch; ``flat`` joins them."""

    logp: list[Tensor] = field(default_factory=list[Tensor])
    behaviour: list[Tensor] = field(default_factory=list[Tensor])
    ratio: list[Tensor] = field(default_factory=list[Tensor])
    clipped: list[Tensor] = field(default_factory=list[Tensor])
    entropy: list[Tensor] = field(default_factory=list[Tensor])

    def flat(self, name: str) -> Tensor:
        """All values of one field, float32 [N]."""
        parts: Sequence[Tensor] = getattr(self, name)
        return torch.cat([p.detach().float() for p in parts]) if parts else torch.zeros(0)


@dataclass
class Update:
    """What one update did. ``grad_norm`` is ``None`` if there was nothing to learn and the weights did not change."""

    loss: float
    grad_norm: float | None
    stats: TokenStats


@dataclass
class Frozen:
    """Constant log-probabilities [B, T] of a batch under other weights; ``None`` where not needed."""

    old: Tensor | None = None
    reference: Tensor | None = None


def policy_update(
    scorer: Scorer, optimizer: torch.optim.Optimizer, batch: Batch, rows: Tensor, frozen: Frozen, recipe: OnlineRecipe
) -> Update:
    """One optimizer update on ``rows`` of ``batch``, whose advantages are set.

    Denominators count all trainable tokens of ``rows``. Rows without advantage, whose gradient is exactly zero without
    a penalty (KL, or that of ``dro``), are not computed; if none is left, the weights and the optimizer's moments stay
    as they are. Raises ``NonFiniteError``.
    """
    objective = recipe.objective
    weights = torch.zeros(batch.mask.shape)
    weights[rows] = token_weights(batch.mask[rows], batch.member[rows], objective.weighting, objective.l_max)
    correction = _correction(batch, rows, frozen.old, objective)
    penalised = objective.kl.coefficient > 0 or objective.loss == "dro"
    learning = rows if penalised else rows[(batch.advantage[rows] != 0).any(1)]
    given = _given_by_update(scorer, batch, learning, frozen.old, objective) if objective.needs_update else None
    stats, total = TokenStats(), 0.0
    optimizer.zero_grad()
    for part_rows in scorer.parts(batch, learning):
        part = select_rows(batch, part_rows)
        picked = _Picker(part, part_rows)
        logp, entropy = scorer(part)
        require_finite(logp.detach(), picked.member, batch.episodes, "log-probability")
        behaviour, advantage = picked(batch.behaviour), picked(batch.advantage)
        old = behaviour if objective.old_logprobs == "behaviour" else logp.detach()
        if frozen.old is not None:
            old = picked(frozen.old)
        tokens = Tokens(logp, old, advantage, None if given is None else picked(given))
        loss, cut = policy_loss(objective.loss, tokens, objective.options)
        if correction is not None:
            loss = loss * picked(correction)
        if frozen.reference is not None:
            loss = loss + objective.kl.coefficient * kl_penalty(logp, picked(frozen.reference), objective.kl.kind)
        weighted = (loss * picked(weights)).sum()
        weighted.backward()
        total += weighted.item()
        ratio = log_ratio(logp, old).exp()
        for name, value in (("logp", logp), ("behaviour", behaviour), ("ratio", ratio)):
            getattr(stats, name).append(value.detach())
        stats.clipped.append(cut)
        stats.entropy.append(entropy)
    norm = finish(optimizer, recipe.optimizer.max_grad_norm) if stats.logp else None
    return Update(total, norm, stats)


def supervised_update(
    scorer: Scorer,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    max_grad_norm: float,
    weights: Tensor | None = None,
) -> Update:
    """One update on the negative log-probability of all trainable tokens, times ``weights`` [B, T] and summed; without
    weights their mean. Raises ``NonFiniteError``."""
    if weights is None:
        weights = token_weights(batch.mask, batch.member, "token_mean")
    stats, total = TokenStats(), 0.0
    optimizer.zero_grad()
    for rows in scorer.parts(batch, torch.arange(len(batch.lengths))):
        part = select_rows(batch, rows)
        picked = _Picker(part, rows)
        logp, entropy = scorer(part)
        require_finite(logp.detach(), picked.member, batch.episodes, "log-probability")
        loss = -(logp * picked(weights)).sum()
        loss.backward()
        total += loss.item()
        stats.logp.append(logp.detach())
        stats.entropy.append(entropy)
    norm = finish(optimizer, max_grad_norm) if stats.logp else None
    return Update(total, norm, stats)


def finish(optimizer: torch.optim.Optimizer, max_grad_norm: float) -> float:
    """Clip the gradient and step; returns the norm before clipping. Raises ``NonFiniteError`` before any change."""
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    norm = float(torch.nn.utils.clip_grad_norm_(trained, max_grad_norm))
    if not torch.isfinite(torch.tensor(norm)):
        raise NonFiniteError(f"the gradient norm is {norm}; weights were not changed. Lower the learning rate")
    optimizer.step()
    return norm


class _Picker:
    """Takes the trainable tokens of one micro-batch out of a tensor [B, T] over the whole batch, flat [N]."""

    def __init__(self, part: Batch, rows: Sequence[int]) -> None:
        self._mask = part.mask
        self._rows = torch.tensor(rows)
        self.member = part.member.repeat_interleave(part.mask.sum(1))

    def __call__(self, whole: Tensor) -> Tensor:
        return whole[self._rows][:, : self._mask.shape[1]][self._mask]


def _given_by_update(
    scorer: Scorer, batch: Batch, rows: Tensor, old: Tensor | None, objective: ObjectiveSection
) -> Tensor:
    """What the loss must know of all trainable tokens of ``rows`` under the present weights, [B, T]."""
    result = torch.zeros(batch.mask.shape)
    fresh = objective.old_logprobs == "recompute" and old is None
    if not rows.numel() or (fresh and objective.per_episode):
        return result  # the old log-probabilities are the present ones: every log-ratio is 0
    mask = torch.zeros_like(batch.mask)
    mask[rows] = batch.mask[rows]
    now = scorer.whole(batch, rows)
    before = now if fresh else batch.behaviour if old is None else old
    tokens = Tokens(now[mask], before[mask], batch.advantage[mask])
    member = batch.member[:, None].expand_as(mask)[mask]
    result[mask] = given_by_update(objective.loss, tokens, member, objective.options)
    return result


def _correction(batch: Batch, rows: Tensor, old: Tensor | None, objective: ObjectiveSection) -> Tensor | None:
    """Importance weights [B, T] of the trainer's old log-probabilities against the sampler's."""
    kind = objective.correction.kind
    if kind == "none" or old is None:
        return None
    mask = torch.zeros_like(batch.mask)
    mask[rows] = batch.mask[rows]
    result = torch.zeros(mask.shape)
    result[mask] = correction_weights(
        (old - batch.behaviour)[mask],
        batch.member[:, None].expand_as(mask)[mask],
        kind=kind,
        level=objective.correction.level,
        low=objective.correction.low,
        high=objective.correction.high,
    )
    return result

"""Policy losses by name, each a function of the trained tokens alone: loss per token, and where it was cut.

Most take ratios per token. ``gspo``, ``gmpo``, ``vespo`` and ``opsm`` look at the ratio of an episode; since it is the
same for all its tokens, its value can be computed beforehand without a gradient, and each token then adds its own share
of the gradient, exactly, in whatever micro-batch it stands. ``gspo`` takes the advantage per token, so it also is what
others call gspo-token. ``m2po``, ``clip_cov`` and ``kl_cov`` choose tokens among all of the update, beforehand too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from forkgym.trainers.kinds import CHOOSING_LOSSES, PolicyLoss
from forkgym.trainers.objectives import MAX_LOG_RATIO, clipped_loss, kl_penalty, log_ratio


@dataclass(frozen=True)
class Tokens:
    """Trained tokens, all float [N]. ``given`` is what ``given_by_update`` found, for the losses that need it."""

    logp: Tensor
    old: Tensor
    advantage: Tensor
    given: Tensor | None = None


def policy_loss(kind: PolicyLoss, tokens: Tokens, options: Mapping[str, float | None]) -> tuple[Tensor, Tensor]:
    """Loss [N] and a mask [N] of the tokens whose gradient was cut, capped or dropped.

    ``options`` are those that ``kinds.LOSS_OPTIONS`` names for ``kind``, all of them.
    """
    loss, cut = _LOSSES[kind](tokens, {name: value for name, value in options.items() if value is not None})
    return loss, cut


def given_by_update(kind: PolicyLoss, tokens: Tokens, member: Tensor, options: Mapping[str, float | None]) -> Tensor:
    """What ``kind`` must know of all tokens of the update, [N], without gradient: ``episode_log_ratios``, or 1 for each
    of the ``chosen_tokens`` and 0 for the others."""
    if kind in CHOOSING_LOSSES:
        return chosen_tokens(kind, tokens, options).to(tokens.logp.dtype)
    return episode_log_ratios(kind, tokens, member, options)


def chosen_tokens(kind: PolicyLoss, tokens: Tokens, options: Mapping[str, float | None]) -> Tensor:
    """The tokens that ``m2po`` drops, ``clip_cov`` drops or ``kl_cov`` penalises: bool [N].

    All tokens of the update must be given at once. Equal tokens are chosen together, so their order does not matter.
    ``m2po``: of the tokens that already moved the way A pushes them, those with the largest squared log-ratio, as few
    as leave a mean square of at most ``tau`` among the rest of these.
    ``clip_cov`` and ``kl_cov``: those with the largest positive ``(A - mean A) * (log pi - mean log pi)``, a share of
    ``cov_share`` of all tokens and at least one.
    """
    if not tokens.logp.numel():
        return _none(tokens.logp)
    if kind == "m2po":
        each = log_ratio(tokens.logp, tokens.old).detach().to(torch.float64)
        moved, square = each * tokens.advantage > 0, each.square()
        ordered = square[moved].sort().values
        over = ordered.cumsum(0) / torch.arange(1, len(ordered) + 1) > _number(options, "tau")
        return moved & (square >= ordered[over][0]) if bool(over.any()) else _none(square)
    advantage, logp = tokens.advantage.to(torch.float64), tokens.logp.detach().to(torch.float64)
    covariance = (advantage - advantage.mean()) * (logp - logp.mean())
    count = max(1, int(_number(options, "cov_share") * len(covariance)))
    return (covariance >= covariance.topk(count).values[-1]) & (covariance > 0)


def episode_log_ratios(kind: PolicyLoss, tokens: Tokens, member: Tensor, options: Mapping[str, float | None]) -> Tensor:
    """The log-ratio of each token's episode, [N], without gradient: the mean over the episode's trained tokens.

    ``gmpo`` cuts the tokens' own log-ratios before it takes the mean; ``vespo`` takes the sum; for ``opsm`` it is 0
    where the mean advantage of the episode is not negative. ``member`` int64 [N] numbers the episodes; all trained
    tokens of an episode must be given at once.
    """
    each = log_ratio(tokens.logp, tokens.old).detach()
    if kind == "gmpo":
        each, _ = _gmpo_cut(each, tokens.advantage, options)
    size = int(member.max()) + 1 if member.numel() else 0
    total = torch.zeros(size, dtype=each.dtype).index_add_(0, member, each)
    if kind == "vespo":
        return total[member]
    if kind == "opsm":
        push = torch.zeros(size, dtype=each.dtype).index_add_(0, member, tokens.advantage.to(each.dtype))
        total = torch.where(push < 0, total, 0.0)
    return (total / torch.bincount(member, minlength=size).clamp(min=1))[member]


def _ppo(tokens: Tokens, options: Mapping[str, float]) -> tuple[Tensor, Tensor]:
    """Schulman et al. 2017 (arXiv 1707.06347), with separate bounds and dual clip."""
    ratio = log_ratio(tokens.logp, tokens.old).exp()
    return clipped_loss(
        ratio,
        tokens.advantage,
        clip_low=options["clip_low"],
        clip_high=options["clip_high"],
        dual_clip=options.get("dual_clip"),
    )


def _gspo(tokens: Tokens, options: Mapping[str, float]) -> tuple[Tensor, Tensor]:
    """Zheng et al. 2025 (arXiv 2507.18071): the ratio is the geometric mean over the episode's tokens."""
    ratio = _given(tokens).exp() * _own_share(tokens.logp)
    return clipped_loss(ratio, tokens.advantage, clip_low=options["clip_low"], clip_high=options["clip_high"])


def _gmpo(tokens: Tokens, options: Mapping[str, float]) -> tuple[Tensor, Tensor]:
    """Zhao et al. 2025 (arXiv 2507.20673): tokens are cut in log space, then their geometric mean is the ratio."""
    _, cut = _gmpo_cut(log_ratio(tokens.logp, tokens.old).detach(), tokens.advantage, options)
    share = torch.where(cut, 1.0, _own_share(tokens.logp))
    return -_given(tokens).exp() * share * tokens.advantage, cut


def _cispo(tokens: Tokens, options: Mapping[str, float]) -> tuple[Tensor, Tensor]:
    """MiniMax-M1 (arXiv 2506.13585): a capped constant ratio weighs log pi, so that no token loses its gradient."""
    ratio = log_ratio(tokens.logp, tokens.old).exp().detach()
    weight = ratio.clamp(1 - options["clip_low"], 1 + options["clip_high"])
    return -weight * tokens.advantage * tokens.logp, weight != ratio


def _sapo(tokens: Tokens, options: Mapping[str, float]) -> tuple[Tensor, Tensor]:
    """Soft adaptive policy optimisation (arXiv 2511.20347): a sigmoid gate in place of the clip.

    -(4 / tau) * sigmoid(tau * (ratio - 1)) * A, with one tau for positive advantages and one for the others.
    """
    ratio = log_ratio(tokens.logp, tokens.old).exp()
    tau = torch.where(tokens.advantage > 0, options["tau_positive"], options["tau_negative"])
    return -4 / tau * torch.sigmoid(tau * (ratio - 1)) * tokens.advantage, _none(ratio)


def _topr(tokens: Tokens, options: Mapping[str, float]) -> tuple[Tensor, Tensor]:
    """Tapered off-policy REINFORCE (arXiv 2503.14286): negative advantages are weighted by min(ratio, 1)."""
    ratio = log_ratio(tokens.logp, tokens.old).exp().detach()
    weight = torch.where(tokens.advantage > 0, 1.0, ratio.clamp(max=1.0))
    return -weight * tokens.advantage * tokens.logp, (tokens.advantage <= 0) & (ratio > 1)


def _dro(tokens: Tokens, options: Mapping[str, float]) -> tuple[Tensor, Tensor]:
    """Kimi k1.5 (arXiv 2501.12599), DRO (arXiv 2405.19107): a square penalty on the log-ratio in place of the clip."""
    square = log_ratio(tokens.logp, tokens.old).square()
    return -(tokens.advantage * tokens.logp - options["tau"] / 2 * square), _none(square)


def _dppo(tokens: Tokens, options: Mapping[str, float]) -> tuple[Tensor, Tensor]:
    """DPPO with total variation: a token is dropped once its probability has moved by ``delta`` the way A pushes it."""
    moved = tokens.logp.detach().exp() - tokens.old.exp()
    cut = torch.where(tokens.advantage > 0, moved > options["delta"], moved < -options["delta"])
    ratio = log_ratio(tokens.logp, tokens.old).exp()
    return torch.where(cut, 0.0, -ratio * tokens.advantage), cut


def _dis(tokens: Tokens, options: Mapping[str, float]) -> tuple[Tensor, Tensor]:
    """Direct importance sampling of SAO (arXiv 2607.07508): a constant ratio weighs log pi, and is 0 out of bounds."""
    ratio = log_ratio(tokens.logp, tokens.old).exp().detach()
    kept = (ratio > 1 - options["clip_low"]) & (ratio < 1 + options["clip_high"])
    return -torch.where(kept, ratio, 0.0) * tokens.advantage * tokens.logp, ~kept


def _vespo(tokens: Tokens, options: Mapping[str, float]) -> tuple[Tensor, Tensor]:
    """VESPO: a constant w^k * e^(tau * (1 - w)) of the episode's ratio w weighs log pi, most near w = k / tau."""
    log_w, push = _given(tokens), tokens.advantage > 0
    k = torch.where(push, options["k_positive"], options["k_negative"])
    tau = torch.where(push, options["tau_positive"], options["tau_negative"])
    weight = (k * log_w + tau * (1 - log_w.exp())).exp()
    return -weight * tokens.advantage * tokens.logp, _none(log_w)


def _opsm(tokens: Tokens, options: Mapping[str, float]) -> tuple[Tensor, Tensor]:
    """Off-policy sequence masking: ``ppo`` without the episodes that are pushed down and already lie ``delta`` lower.

    ``delta`` bounds the mean of ``log old - log pi`` over the trained tokens of an episode with a negative mean A.
    """
    loss, cut = _ppo(tokens, options)
    dropped = _given(tokens) < -options["delta"]
    return torch.where(dropped, 0.0, loss), cut | dropped


def _m2po(tokens: Tokens, options: Mapping[str, float]) -> tuple[Tensor, Tensor]:
    """M2PO (arXiv 2510.01161, algorithm 1): -ratio * A, without the tokens that went farthest; no other clip.

    Dropped tokens stay in the denominator. The authors' released code differs: it looks for a range to clip to.
    """
    dropped = _chosen(tokens)
    ratio = log_ratio(tokens.logp, tokens.old).exp()
    return torch.where(dropped, 0.0, -ratio * tokens.advantage), dropped


def _clip_cov(tokens: Tokens, options: Mapping[str, float]) -> tuple[Tensor, Tensor]:
    """Clip-Cov (arXiv 2505.22617): ``ppo`` without the tokens that cost most entropy.

    Always those of largest covariance; the paper draws at random among the tokens within two bounds of it.
    """
    loss, cut = _ppo(tokens, options)
    dropped = _chosen(tokens)
    return torch.where(dropped, 0.0, loss), cut | dropped


def _kl_cov(tokens: Tokens, options: Mapping[str, float]) -> tuple[Tensor, Tensor]:
    """KL-Cov (arXiv 2505.22617): -ratio * A, and a penalty on leaving the old policy at the tokens that cost most
    entropy: k2, the estimate whose gradient is that of the KL divergence."""
    penalised = _chosen(tokens)
    penalty = options["cov_kl"] * kl_penalty(tokens.logp, tokens.old, "k2")
    loss = -log_ratio(tokens.logp, tokens.old).exp() * tokens.advantage
    return torch.where(penalised, loss + penalty, loss), _none(loss)


def _reinforce(tokens: Tokens, options: Mapping[str, float]) -> tuple[Tensor, Tensor]:
    """-A * log pi, whatever the sampler's probability was."""
    return -tokens.advantage * tokens.logp, _none(tokens.logp)


def _given(tokens: Tokens) -> Tensor:
    if tokens.given is None:
        raise ValueError("this loss takes one ratio per episode: give what given_by_update returns")
    return tokens.given.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def _chosen(tokens: Tokens) -> Tensor:
    if tokens.given is None:
        raise ValueError("this loss chooses among all tokens of the update: give what given_by_update returns")
    return tokens.given > 0


def _number(options: Mapping[str, float | None], name: str) -> float:
    value = options[name]
    assert value is not None
    return value


def _own_share(logp: Tensor) -> Tensor:
    """1, with the gradient of ``logp``."""
    return (logp - logp.detach()).exp()


def _none(like: Tensor) -> Tensor:
    return torch.zeros_like(like, dtype=torch.bool)


def _gmpo_cut(each: Tensor, advantage: Tensor, options: Mapping[str, float | None]) -> tuple[Tensor, Tensor]:
    low, high = _number(options, "clip_low"), _number(options, "clip_high")
    kept = torch.where(advantage > 0, each.clamp(max=high), each.clamp(min=-low))
    return kept, kept != each


_LOSSES = {
    "ppo": _ppo,
    "gspo": _gspo,
    "gmpo": _gmpo,
    "cispo": _cispo,
    "sapo": _sapo,
    "topr": _topr,
    "dro": _dro,
    "dppo": _dppo,
    "dis": _dis,
    "vespo": _vespo,
    "opsm": _opsm,
    "m2po": _m2po,
    "clip_cov": _clip_cov,
    "kl_cov": _kl_cov,
    "reinforce": _reinforce,
}

"""The policy loss: ratios, clipping, importance correction, KL, and how tokens are weighted.

All token functions take flat tensors [N] of the trainable tokens only, so padding and masked NaN never enter the
arithmetic. ``token_weights`` fixes every denominator once for the whole optimizer step; the loss of any subset of rows
is a plain weighted sum, and micro-batches of any size add up to the same loss and gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from forkgym.trainers.errors import NonFiniteError
from forkgym.trainers.kinds import Aggregation, CorrectionKind, CorrectionLevel, KlKind

MAX_LOG_RATIO = 20.0
"""Log-ratios are cut here before ``exp``; beyond it a float32 product could overflow and poison the gradient."""


def token_weights(mask: Tensor, member: Tensor, aggregation: Aggregation, l_max: int | None = None) -> Tensor:
    """Weight of each token in the loss of one optimizer step; float32 [B, T], 0 where ``mask`` is False.

    ``mask`` [B, T] and ``member`` [B] cover the whole step. A member is one episode, whatever its number of rows.

    - ``token_mean``: 1 / all trainable tokens (DAPO, arXiv 2503.14476).
    - ``seq_mean_token_mean``: 1 / (members * tokens of this member) (GRPO).
    - ``seq_mean_token_sum_norm``: 1 / (members * ``l_max``), a constant (Dr. GRPO).

    Members without a trainable token are not counted; a step without any gives all zeros.
    """
    weights = torch.zeros(mask.shape, dtype=torch.float32)
    tokens = torch.zeros(int(member.max()) + 1 if member.numel() else 0, dtype=torch.int64)
    tokens.index_add_(0, member, mask.sum(1))
    members = int((tokens > 0).sum())
    if members == 0:
        return weights
    if aggregation == "token_mean":
        per_row = torch.full(member.shape, 1.0 / int(tokens.sum()))
    elif aggregation == "seq_mean_token_mean":
        per_row = 1.0 / (members * tokens[member].clamp(min=1).to(torch.float32))
    else:
        if not l_max:
            raise ValueError("seq_mean_token_sum_norm needs l_max")
        per_row = torch.full(member.shape, 1.0 / (members * l_max))
    return torch.where(mask, per_row[:, None], weights)


def log_ratio(logp: Tensor, old: Tensor) -> Tensor:
    """``log(pi / pi_old)`` [N], cut to +-20."""
    return (logp - old).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def clipped_loss(
    ratio: Tensor, advantage: Tensor, *, clip_low: float, clip_high: float, dual_clip: float | None = None
) -> tuple[Tensor, Tensor]:
    """PPO's pessimistic loss per token (arXiv 1707.06347) and where the clip stopped the gradient; both [N].

    ``-min(rho * A, clip(rho, 1 - low, 1 + high) * A)``. With ``dual_clip`` c > 1, a token with A < 0 loses at most
    ``-c * A`` (arXiv 1912.09729).
    """
    plain = -ratio * advantage
    clipped = -ratio.clamp(1 - clip_low, 1 + clip_high) * advantage
    loss = torch.maximum(plain, clipped)
    stopped = clipped > plain
    if dual_clip is not None:
        bound = -dual_clip * advantage
        over = (advantage < 0) & (loss > bound)
        loss = torch.where(over, bound, loss)
        stopped = stopped | over
    return loss, stopped


def correction_weights(
    log_weight: Tensor,
    row_member: Tensor,
    *,
    kind: CorrectionKind,
    level: CorrectionLevel,
    low: float,
    high: float,
) -> Tensor:
    """Constant importance weights [N] that correct the sampler's probabilities towards the trainer's.

    ``log_weight`` [N] is ``log pi_train(old) - log pi_sampler``; ``row_member`` int64 [N] the member of each token.
    The weight is per ``token``, the product over the member's tokens (``sequence``), or their geometric mean.
    ``tis`` caps it at ``high``; ``icepop`` drops what lies outside [``low``, ``high``]. Dropped tokens stay in the
    denominators of ``token_weights``, so dropping never raises the weight of the rest.
    """
    log_weight = log_weight.detach()
    if level != "token" and log_weight.numel():
        size = int(row_member.max()) + 1
        total = torch.zeros(size, dtype=log_weight.dtype).index_add_(0, row_member, log_weight)
        if level == "geometric":
            total = total / torch.bincount(row_member, minlength=size).clamp(min=1)
        log_weight = total[row_member]
    weight = log_weight.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    if kind == "tis":
        return weight.clamp(max=high)
    return torch.where((weight >= low) & (weight <= high), weight, 0.0)


def kl_penalty(logp: Tensor, reference: Tensor, kind: KlKind) -> Tensor:
    """Per-token estimate of KL(pi || reference) [N], from d = log pi - log reference: d, d^2/2 or e^-d - 1 + d.

    As a loss, only ``k2`` has the gradient of the reverse KL; ``k1`` has none in expectation and ``k3`` has that of the
    forward KL.
    """
    difference = log_ratio(logp, reference)
    if kind == "k1":
        return difference
    if kind == "k2":
        return difference.square() / 2
    return torch.expm1(-difference) + difference


def require_finite(values: Tensor, row_member: Tensor, episodes: list[str], what: str) -> None:
    """Raise ``NonFiniteError`` naming the episode if a trainable token's ``values`` [N] is NaN or infinite."""
    bad = (~torch.isfinite(values)).nonzero()
    if bad.numel():
        where = int(bad[0, 0])
        episode = episodes[int(row_member[where])]
        raise NonFiniteError(
            f"{what} of a trained token is {values[where].item()} in episode {episode!r} "
            f"({bad.shape[0]} such tokens); lower the learning rate or train in float32"
        )

"""Advantage estimators as pure functions of rewards, groups and masks.

Group estimators work on members (episodes), in float64, so that equal rewards give exactly zero. Token recursions
(returns, GAE) step from one trainable token to the next: observation tokens carry no reward, no value and no discount.
Conventions differ between libraries under one name, so each is an explicit argument.
"""

from __future__ import annotations

from math import comb
from typing import cast

import torch
from torch import Tensor

from forkgym.trainers.kinds import Baseline, StdKind


def group_advantage(
    reward: Tensor,
    group: Tensor,
    *,
    baseline: Baseline,
    std: StdKind,
    eps: float,
    tolerance: float,
    length: Tensor | None = None,
) -> Tensor:
    """Advantage of each member against its own group: ``(r - baseline) / (std + eps)``.

    ``reward`` [M], ``group`` int64 [M]; returns float64 [M]. Members are episodes that were scored; one that failed is
    not among them. A group whose rewards lie within ``tolerance``, or with one member, gives exactly 0, but with
    ``baseline="zero"``.

    - ``baseline="mean"``: the group's mean (GRPO, arXiv 2402.03300); ``"loo"``: the mean of the others (RLOO, arXiv
      2402.14740); ``"length"``: the mean weighted by ``length`` [M], the members' trained tokens (OPO, arXiv
      2505.23585); ``"zero"``: none (REINFORCE).
    - ``std="sample"``: divisor n-1; ``"population"``: divisor n; ``"none"``: no division (Dr. GRPO, arXiv 2503.20783);
      ``"loo"``: the sample deviation of the others (with ``baseline="loo"``), undivided where they agree; ``"mean"``:
      the group's mean reward in place of a deviation (MaxRL), for rewards that are not negative.
    """
    if std == "loo" and baseline != "loo":
        raise ValueError("std='loo' needs baseline='loo'")
    if baseline == "length" and length is None:
        raise ValueError("baseline='length' needs the members' lengths")
    rewards = _finite(reward)
    if std == "mean" and bool((rewards < 0).any()):
        raise ValueError("std='mean' divides by the mean reward of a group, so no reward may be negative")
    if baseline == "zero" and std == "none":
        return rewards
    lengths = torch.ones_like(rewards) if length is None else length.to(torch.float64)
    result = torch.zeros_like(rewards)
    for label in _labels(group):
        members = group == label
        result[members] = _within_group(rewards[members], lengths[members], baseline, std, eps, tolerance)
    return result


def component_advantage(parts: Tensor, weights: Tensor, group: Tensor, *, eps: float, tolerance: float) -> Tensor:
    """GDPO (arXiv 2601.05242): each reward component [M, K] is normalised in its group, then summed by ``weights`` [K].

    Returns float64 [M]. A component that does not differ within a group adds nothing there, whatever its scale.
    """
    columns = [
        weight * group_advantage(part, group, baseline="mean", std="sample", eps=eps, tolerance=tolerance)
        for part, weight in zip(parts.unbind(1), weights.to(torch.float64), strict=True)
    ]
    return torch.stack(columns).sum(0)


def pass_at_k_advantage(reward: Tensor, group: Tensor, *, k: int, tolerance: float) -> Tensor:
    """What a member adds to the best of ``k`` members of its group (PKPO, arXiv 2505.15201, leave-one-out form).

    ``k`` times the mean, over the sets of ``k`` members that hold this one, of ``max(set) - max(set without it)``;
    float64 [M]. Times the gradient of the episode's log pi (its tokens summed), its mean over members is an unbiased
    gradient of the expected best of ``k`` (pass@k for rewards 0 and 1). ``k`` is at least 2. A group with
    fewer than ``k`` scored members, or whose rewards lie within ``tolerance``, gives exactly 0.
    """
    if k < 2:
        raise ValueError(f"k is {k}, but the best of one is the reward itself; give at least 2")
    rewards = _finite(reward)
    result = torch.zeros_like(rewards)
    for label in _labels(group):
        members = group == label
        result[members] = _gain_of_best(rewards[members], k, tolerance)
    return result


def _gain_of_best(rewards: Tensor, k: int, tolerance: float) -> Tensor:
    n = rewards.numel()
    if n < k or _spread(rewards) <= tolerance:
        return torch.zeros_like(rewards)
    ordered, place = rewards.sort()
    # Sets where the member of rank j is the best of the others: k - 2 more are chosen from the j below it.
    sets = torch.tensor([comb(j, k - 2) for j in range(n)], dtype=torch.float64) * (n / comb(n, k))
    gains = (ordered[:, None] - ordered[None, :]).tril() * sets[None, :]
    result = torch.empty_like(rewards)
    result[place] = gains.sum(1)
    return result


def tournament_advantage(reward: Tensor, group: Tensor, length: Tensor, *, tolerance: float) -> Tensor:
    """LEAP's rank: matches won less matches lost against the other members of the group, over their number.

    ``length`` [M] are trained tokens; float64 [M], between -1 and 1, with sum 0 in each group, whatever the scale of
    the rewards. The higher reward wins. The abstract leaves ties open; here rewards within ``tolerance`` are a tie,
    which the shorter episode wins if one of the two is above 0, since to fail in fewer tokens is no merit.
    """
    rewards = _finite(reward)
    result = torch.zeros_like(rewards)
    for label in _labels(group):
        members = group == label
        r, tokens = rewards[members], length[members].to(torch.float64)
        gap, best = r[:, None] - r[None, :], torch.maximum(r[:, None], r[None, :])
        shorter = torch.where(best > 0, (tokens[None, :] - tokens[:, None]).sign(), 0.0)
        result[members] = torch.where(gap.abs() > tolerance, gap.sign(), shorter).sum(1) / max(len(r) - 1, 1)
    return result


def calibrated_advantage(reward: Tensor, group: Tensor, *, bound: float, tolerance: float) -> Tensor:
    """RiVER's shaping of open-ended scores: a member's calibrated reward minus the group's mean of it, float64 [M].

    The abstract asks for comparisons within an instance, emphasis on the top and bounded credit for other valid
    solutions. Here valid is a reward above 0. The best of the group count 1, invalid ones 0, and the others ``bound``
    times their rank among the distinct scores below the best (the lowest 1), over the number of these. Scores within
    ``tolerance`` of the next one are one score, so repeating a solution does not raise its credit.
    """
    rewards = _finite(reward)
    result = torch.zeros_like(rewards)
    for label in _labels(group):
        members = group == label
        shaped = _calibrated(rewards[members], bound, tolerance)
        result[members] = shaped - shaped.mean() if _spread(shaped) > 0 else 0.0
    return result


def _calibrated(rewards: Tensor, bound: float, tolerance: float) -> Tensor:
    shaped, valid = torch.zeros_like(rewards), rewards > 0
    if not bool(valid.any()):
        return shaped
    ordered, place = rewards[valid].sort()
    rank = torch.cat([torch.ones(1), (ordered.diff() > tolerance).to(torch.float64)]).cumsum(0).to(rewards.dtype)
    below = (rank[-1] - 1).clamp(min=1)
    credit = torch.empty_like(ordered)
    credit[place] = torch.where(rank == rank[-1], 1.0, bound * rank / below)
    shaped[valid] = credit
    return shaped


def overlong_penalty(tokens: Tensor, *, limit: int, margin: int, penalty: float) -> Tensor:
    """What each member's reward loses for its length, float64 [M] (soft overlong punishment, arXiv 2503.14476).

    ``tokens`` [M] are sampled tokens: 0 up to ``limit - margin``, then growing in a line to ``penalty`` at ``limit``.
    """
    over = (tokens.to(torch.float64) - (limit - margin)) / margin
    return penalty * over.clamp(0.0, 1.0)


def gpg_advantage(reward: Tensor, group: Tensor, *, tolerance: float) -> Tensor:
    """GPG (arXiv 2504.02546): the reward minus the group's mean, scaled up for the groups that teach nothing.

    float64 [M]: times members / members of groups whose rewards differ by more than ``tolerance``.
    """
    centred = group_advantage(reward, group, baseline="mean", std="none", eps=0.0, tolerance=tolerance)
    loud = int(has_signal(reward, group, tolerance).sum())
    return centred * (reward.numel() / max(loud, 1))


def turn_advantage(
    final: Tensor,
    turns: Tensor,
    anchor: Tensor,
    *,
    gamma: float,
    std: StdKind,
    eps: float,
    tolerance: float,
) -> Tensor:
    """The step-level part of GiGPO (arXiv 2505.10978): a turn's return against those that began in the same state.

    All [S], one entry per turn: ``final`` the reward of its episode, ``turns`` how many turns of it follow, ``anchor``
    int64 the state it began in, within its group. The return is ``gamma ** turns * final``. Returns float64 [S].
    """
    returns = final.to(torch.float64) * gamma ** turns.to(torch.float64)
    return group_advantage(returns, anchor, baseline="mean", std=std, eps=eps, tolerance=tolerance)


def has_signal(reward: Tensor, group: Tensor, tolerance: float) -> Tensor:
    """Bool [M]: True where the rewards of the member's group differ by more than ``tolerance``."""
    result = torch.zeros_like(group, dtype=torch.bool)
    for label in _labels(group):
        members = group == label
        result[members] = _spread(reward[members]) > tolerance
    return result


def _finite(reward: Tensor) -> Tensor:
    if not torch.isfinite(reward).all():
        raise ValueError("a group member has no finite reward; leave out members that were not scored")
    return reward.to(torch.float64)


def _labels(group: Tensor) -> list[int]:
    return cast("list[int]", group.unique().tolist())


def _spread(values: Tensor) -> float:
    return float(values.max() - values.min()) if values.numel() > 1 else 0.0


def _within_group(
    rewards: Tensor, lengths: Tensor, baseline: Baseline, std: StdKind, eps: float, tolerance: float
) -> Tensor:
    n = rewards.numel()
    if _spread(rewards) <= tolerance and baseline != "zero":
        return torch.zeros_like(rewards)
    if baseline == "zero":
        centred = rewards
    elif baseline == "length":
        centred = rewards - (lengths * rewards).sum() / lengths.sum()
    else:
        centred = rewards - rewards.mean()
    if baseline == "loo":
        centred = centred * (n / (n - 1))
    if std == "none":
        return centred
    if std == "mean":
        return centred / (rewards.mean() + eps)
    if std == "loo":
        return centred / torch.stack([_std_of_others(rewards, i, eps, tolerance) for i in range(n)])
    return centred / (rewards.std(correction=1 if std == "sample" else 0) + eps)


def _std_of_others(rewards: Tensor, index: int, eps: float, tolerance: float) -> Tensor:
    others = torch.cat([rewards[:index], rewards[index + 1 :]])
    if _spread(others) <= tolerance:
        return torch.ones_like(rewards[0])
    return others.std(correction=1) + eps


def returns_to_go(reward: Tensor, mask: Tensor, gamma: float) -> Tensor:
    """Discounted sum of rewards from each trainable token on.

    ``reward`` and ``mask`` [B, T]; returns [B, T], 0 where ``mask`` is False. A reward on a masked token counts for the
    last trainable token before it; the discount counts trainable tokens only.
    """
    result = torch.zeros_like(reward)
    running = torch.zeros_like(reward[:, 0])
    pending = torch.zeros_like(running)
    for t in reversed(range(reward.shape[1])):
        here = pending + reward[:, t]
        running = torch.where(mask[:, t], here + gamma * running, running)
        pending = torch.where(mask[:, t], 0.0, here)
        result[:, t] = torch.where(mask[:, t], running, 0.0)
    return result


def gae(
    reward: Tensor,
    value: Tensor,
    mask: Tensor,
    *,
    gamma: float,
    lam: float | Tensor,
    final_value: Tensor | None = None,
    terminated: Tensor | None = None,
) -> Tensor:
    """Generalised advantage estimation (arXiv 1506.02438) over trainable tokens only.

    ``reward``, ``value``, ``mask`` [B, T], ``lam`` a number or one per row [B]; returns [B, T], 0 where ``mask`` is
    False. Values at masked positions are never read, NaN included. ``final_value`` [B] is the value of the state after
    a cut-off; where ``terminated`` [B] is True, or without it, the state after the end is worth 0.
    """
    after = torch.zeros_like(value[:, 0]) if final_value is None else final_value.to(value.dtype)
    if terminated is not None:
        after = torch.where(terminated, 0.0, after)
    result = torch.zeros_like(value)
    running = torch.zeros_like(after)
    pending = torch.zeros_like(after)
    for t in reversed(range(value.shape[1])):
        trainable = mask[:, t]
        here = pending + reward[:, t]
        value_t = torch.where(trainable, value[:, t], 0.0)
        delta = here + gamma * after - value_t
        running = torch.where(trainable, delta + gamma * lam * running, running)
        after = torch.where(trainable, value_t, after)
        pending = torch.where(trainable, 0.0, here)
        result[:, t] = torch.where(trainable, running, 0.0)
    return result


def whiten(values: Tensor, mask: Tensor) -> Tensor:
    """``values`` with mean 0 and sample deviation 1 over the trainable tokens of the whole tensor; 0 elsewhere.

    Needs all rows of the optimizer step at once. Fewer than two trainable tokens, or equal ones, give 0.
    """
    picked = values[mask].to(torch.float64)
    result = torch.zeros_like(values)
    if picked.numel() > 1 and _spread(picked) > 0:
        result[mask] = ((picked - picked.mean()) / picked.std(correction=1)).to(values.dtype)
    return result

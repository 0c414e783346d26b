"""From episode records to tensors, and from tensors to micro-batches.

Masks come from the lengths and the ``sampled`` flags the policy's ids carry, never from a pad or end-of-text id. An
episode is one group member however many segments it has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import cast

import torch
from torch import Tensor

from forkgym.agents.base import Episode, Segment
from forkgym.trainers.base import Batch
from forkgym.trainers.errors import NonFiniteError, TrainerError
from forkgym.trainers.kinds import TruncatedRule
from forkgym.trainers.prefix import shared_length


@dataclass
class Kept:
    """Episodes that may be trained on, and why the others were left out (reason -> count)."""

    episodes: list[Episode] = field(default_factory=list[Episode])
    left_out: dict[str, int] = field(default_factory=dict[str, int])


def keep_trainable(episodes: Sequence[Episode], truncated: TruncatedRule = "score") -> Kept:
    """Leave out what must not count: episodes that failed or were cancelled, and, with ``truncated="drop"``, those cut
    off by a limit. An episode left out has no loss and no part in its group's baseline.

    Raises ``TrainerError`` for a finished episode without sampled ids: its policy or gateway lost them.
    """
    kept = Kept()
    for episode in episodes:
        reason = _reason_to_leave_out(episode, truncated)
        if reason is None:
            kept.episodes.append(episode)
        else:
            kept.left_out[reason] = kept.left_out.get(reason, 0) + 1
    return kept


def _reason_to_leave_out(episode: Episode, truncated: TruncatedRule) -> str | None:
    if episode.status in ("failed", "cancelled"):
        return f"{episode.status}({episode.reason})"
    if not episode.scored:
        raise TrainerError(f"episode {episode.id!r} is {episode.status} but has no reward; its grader gave no verdict")
    if episode.status == "truncated" and truncated == "drop":
        return f"truncated({episode.reason})"
    if not any(any(segment.sampled) for segment in episode.segments):
        if episode.status == "truncated":
            return f"truncated({episode.reason}) before any token"
        raise TrainerError(
            f"episode {episode.id!r} is scored but holds no sampled token ids; its policy gave none, so there is "
            "nothing to train on: use a policy that returns ids and log-probabilities"
        )
    return None


def build_batch(episodes: Sequence[Episode], temperature: float | None = None) -> Batch:
    """The rows of scored ``episodes``, one per segment with sampled tokens, right-padded to the longest.

    ``temperature`` is that at which the trainer computes the tokens' probabilities anew; ``None`` if it compares them
    with none. ``advantage`` is zero until an estimator fills it. No episode gives an empty batch
    ([0, 0]). Raises ``TrainerError`` if a segment's lists disagree or tokens were sampled from another distribution
    than the one computed anew, and ``NonFiniteError`` if a sampled token has no finite logprob.
    """
    if temperature is not None:
        for episode in episodes:
            _check_sampling(episode, temperature)
    rows = [
        (index, segment)
        for index, episode in enumerate(episodes)
        for segment in episode.segments
        if any(segment.sampled)
    ]
    for index, segment in rows:
        _check(segment, episodes[index].id)
    groups = {label: number for number, label in enumerate(dict.fromkeys(e.group for e in episodes))}
    lengths = torch.tensor([len(segment.ids) for _, segment in rows], dtype=torch.int64)
    member = torch.tensor([index for index, _ in rows], dtype=torch.int64)
    group_of_member = torch.tensor([groups[e.group] for e in episodes], dtype=torch.int64)
    mask = _pad([segment.sampled for _, segment in rows], torch.bool, 0)
    return Batch(
        ids=_pad([segment.ids for _, segment in rows], torch.int64, 0),
        lengths=lengths,
        mask=mask,
        behaviour=_pad([segment.logprobs for _, segment in rows], torch.float32, 0),
        turn=_pad([segment.turn for _, segment in rows], torch.int64, 0),
        version=_pad([segment.version for _, segment in rows], torch.int64, -1),
        member=member,
        group=group_of_member[member],
        reward=torch.tensor([episode.reward for episode in episodes], dtype=torch.float64),
        truncated=torch.tensor([episode.status == "truncated" for episode in episodes], dtype=torch.bool),
        advantage=torch.zeros(mask.shape, dtype=torch.float32),
        episodes=[episode.id for episode in episodes],
    )


def _check_sampling(episode: Episode, temperature: float) -> None:
    """The trainer knows the model's distribution at one temperature, and no cut one."""
    where, sampling = f"episode {episode.id!r}", episode.sampling
    if "temperature" not in sampling:
        raise TrainerError(
            f"{where} does not say how it was sampled, so its log-probabilities cannot be compared with the trainer's; "
            "its agent must set Episode.sampling to SamplingParams.shaping"
        )
    if sampling.get("top_p", 1.0) < 1.0 or sampling.get("top_k", 0.0) > 0:
        raise TrainerError(
            f"{where} was sampled with {dict(sampling)}: a distribution cut by top_p or top_k is not computed anew, "
            "and importance ratios would be wrong; sample with top_p 1 and top_k 0"
        )
    if sampling["temperature"] != temperature:
        raise TrainerError(
            f"{where} was sampled at temperature {sampling['temperature']:g}, but is to be trained at {temperature:g}; "
            "set sampling.temperature to what was sampled with"
        )


def _check(segment: Segment, episode: str) -> None:
    sizes = {name: len(getattr(segment, name)) for name in ("ids", "sampled", "logprobs", "version", "turn")}
    if len(set(sizes.values())) != 1:
        raise TrainerError(f"episode {episode!r}: the lists of a segment differ in length: {sizes}")
    if segment.sampled[0]:
        raise TrainerError(f"episode {episode!r}: the first token of a segment is marked sampled; it has no context")
    for position, (sampled, logprob) in enumerate(zip(segment.sampled, segment.logprobs, strict=True)):
        if sampled and not math.isfinite(logprob):
            raise NonFiniteError(f"episode {episode!r}: logprob {logprob} of sampled token {position}")


def _pad(rows: Sequence[Sequence[int | float | bool]], dtype: torch.dtype, value: int) -> Tensor:
    width = max((len(row) for row in rows), default=0)
    result = torch.full((len(rows), width), value, dtype=dtype)
    for index, row in enumerate(rows):
        result[index, : len(row)] = torch.tensor(row, dtype=dtype)
    return result


def group_of_members(batch: Batch) -> Tensor:
    """Group of each member, int64 [M]; every member has at least one row."""
    result = torch.zeros(batch.reward.shape, dtype=torch.int64)
    result[batch.member] = batch.group
    return result


def tokens_of_members(batch: Batch) -> Tensor:
    """Number of trained tokens of each member, over all its rows: int64 [M]."""
    return torch.zeros(batch.reward.shape, dtype=torch.int64).index_add_(0, batch.member, batch.mask.sum(1))


def spread_to_tokens(batch: Batch, advantage: Tensor) -> Tensor:
    """Each member's ``advantage`` [M] on all its trainable tokens, in all its rows: float32 [B, T]."""
    return torch.where(batch.mask, advantage.to(torch.float32)[batch.member][:, None], 0.0)


def select_rows(batch: Batch, rows: Sequence[int] | Tensor) -> Batch:
    """The given rows, cropped to the longest of them. Members, groups and rewards keep their numbers."""
    index = torch.as_tensor(rows, dtype=torch.int64)
    width = int(batch.lengths[index].max()) if index.numel() else 0
    changes = {
        f.name: getattr(batch, f.name)[index][:, :width]
        for f in fields(batch)
        if f.name in ("ids", "mask", "behaviour", "turn", "version", "advantage")
    }
    return Batch(
        **changes,
        lengths=batch.lengths[index],
        member=batch.member[index],
        group=batch.group[index],
        reward=batch.reward,
        truncated=batch.truncated,
        episodes=batch.episodes,
    )


def micro_batches(ids: Tensor, lengths: Tensor, max_tokens: int) -> list[list[int]]:
    """Row numbers in groups of at most ``max_tokens`` distinct tokens (``prefix.py``); a longer row stands alone.

    Rows that begin alike go together. Which rows share a micro-batch changes speed and memory, never the loss.
    """
    rows = cast("list[list[int]]", [ids[row, : int(lengths[row])].tolist() for row in range(len(lengths))])
    result: list[list[int]] = []
    size = max_tokens
    for row in sorted(range(len(rows)), key=rows.__getitem__):
        new = len(rows[row]) - (shared_length(rows[result[-1][-1]], rows[row]) if result else 0)
        if result and size + new <= max_tokens:
            result[-1].append(row)
            size += new
        else:
            result.append([row])
            size = len(rows[row])
    return result


def split_members(batch: Batch, parts: int) -> list[Tensor]:
    """Row numbers of ``parts`` nearly equal shares of the members, in order; a member is never split."""
    if parts == 1:
        return [torch.arange(batch.member.numel())]
    chunks = torch.arange(batch.reward.numel()).tensor_split(parts)
    shares = [torch.isin(batch.member, chunk).nonzero()[:, 0] for chunk in chunks]
    return [share for share in shares if share.numel()]

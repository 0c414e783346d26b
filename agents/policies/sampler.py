"""Drawing tokens from logits: cut to the likeliest if asked, repeatable, with exact log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from forkgym.agents.base import SamplingParams

_BLOCK = 256


def shape(logits: Tensor, params: Sequence[SamplingParams]) -> None:
    """Make ``logits`` [n, V] those of the distribution to sample from, in place: tempered, then cut.

    Row i follows ``params[i]``. What may not be drawn becomes -inf. A greedy row stays as it is.
    """
    hot = [p.temperature or 1.0 for p in params]
    if any(t != 1.0 for t in hot):
        logits /= torch.tensor(hot, device=logits.device)[:, None]
    for row, p in zip(logits, params, strict=True):
        if p.truncates and p.temperature > 0:
            kept = _likeliest(row, p.top_k, p.top_p)
            values = row[kept]
            row.fill_(-torch.inf)
            row[kept] = values


def _likeliest(row: Tensor, top_k: int, top_p: float) -> Tensor:
    """Ids of the ``top_k`` likeliest tokens (0: all), and of those the fewest that hold ``top_p`` of their mass."""
    size = row.numel()
    values, ids = row.topk(min(top_k or _BLOCK, size))
    if top_p >= 1.0:
        return ids
    mass = (values if top_k else row).logsumexp(0)
    reached = (values - mass).double().exp().cumsum(0)
    if not top_k and reached[-1] < top_p:
        values, ids = row.sort(descending=True)
        reached = (values - mass).double().exp().cumsum(0)
    return ids[: int((reached < top_p).sum()) + 1]


def sample(logits: Tensor, points: Sequence[float | None]) -> tuple[list[int], list[float]]:
    """Token ids and their log-probabilities, natural log, from ``logits`` [n, V], which are overwritten.

    Row i is drawn by inverse CDF at ``points[i]`` in [0, 1), or greedily where that is ``None``. The CDF is searched
    block by block, since a running sum over a whole vocabulary costs more than the model's own head.
    """
    rows = torch.arange(len(points))
    best = logits.argmax(-1)
    logits -= torch.logsumexp(logits, -1, keepdim=True)
    logprobs = logits
    width = -(-logits.shape[1] // _BLOCK) * _BLOCK
    probs = torch.nn.functional.pad(logprobs.exp(), (0, width - logits.shape[1])).view(len(rows), -1, _BLOCK)
    edges = probs.sum(-1, dtype=torch.float64).cumsum(-1)
    point = torch.tensor([p or 0.0 for p in points], dtype=torch.float64)[:, None] * edges[:, -1:]
    block = torch.searchsorted(edges, point, right=True)[:, 0].clamp(max=edges.shape[1] - 1)
    inside = point[:, 0] - torch.where(block > 0, edges[rows, (block - 1).clamp(min=0)], torch.zeros(()))
    cdf = probs[rows, block].double().cumsum(-1)
    offset = torch.searchsorted(cdf, inside[:, None], right=True)[:, 0]
    drawn = block * _BLOCK + torch.minimum(offset, (cdf < cdf[:, -1:]).sum(-1))
    ids = torch.where(torch.tensor([p is None for p in points]), best, drawn)
    return cast("list[int]", ids.tolist()), cast("list[float]", logprobs[rows, ids].tolist())

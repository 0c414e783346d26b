"""Rows that begin with the same tokens, computed once.

The members of a group share a prompt and often their first turns. ``pack`` folds the rows of a batch into one token
tree: every distinct prefix becomes one position, and a position attends to its own ancestors only. Hidden states are
those of the separate rows, at the cost of the distinct tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packed:
    """One token tree of N nodes.

    - ``ids``        int64 [1, N]
    - ``positions``  int64 [1, N]        depth of the node: the position its token has in its row
    - ``attends``    bool  [1, 1, N, N]  True where node i may read node j: j is i or an ancestor of i
    - ``node``       int64 [B, T]        the node of each token of each row; 0 for padding
    """

    ids: Tensor
    positions: Tensor
    attends: Tensor
    node: Tensor


def pack(ids: Tensor, lengths: Tensor) -> Packed:
    """The token tree of right-padded rows ``ids`` int64 [B, T] of true ``lengths`` int64 [B]."""
    node = torch.zeros_like(ids)
    tokens: list[Tensor] = []
    depths: list[Tensor] = []
    sizes: list[int] = []
    total = 0
    for row in range(ids.shape[0]):
        length = int(lengths[row])
        shared, source = _longest_shared(ids, lengths, row)
        node[row, :shared] = node[source, :shared]
        node[row, shared:length] = torch.arange(total, total + length - shared)
        tokens.append(ids[row, shared:length])
        depths.append(torch.arange(shared, length))
        sizes.append(length - shared)
        total += length - shared
    attends = torch.zeros(total, total, dtype=torch.bool)
    start = 0
    for row, size in enumerate(sizes):
        path = node[row, : int(lengths[row])]
        below = torch.ones(size, path.numel(), dtype=torch.bool).tril(path.numel() - size)
        attends[start : start + size, path] = below
        start += size
    return Packed(torch.cat(tokens)[None], torch.cat(depths)[None], attends[None, None], node)


def _longest_shared(ids: Tensor, lengths: Tensor, row: int) -> tuple[int, int]:
    """How many leading tokens ``row`` shares with the earlier row that shares most, and which row that is."""
    if row == 0:
        return 0, 0
    length = int(lengths[row])
    same = (ids[:row, :length] == ids[row, :length]).to(torch.int64).cumprod(1).sum(1)
    shared, source = torch.minimum(same, lengths[:row]).max(0)
    return int(shared), int(source)


def shared_length(a: list[int], b: list[int]) -> int:
    """How many leading tokens two rows share."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))

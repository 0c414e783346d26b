"""What trainers compute on. Advantages and objectives are pure functions of these tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Batch:
    """Rows of one optimizer step, right-padded. B rows, T tokens.

    One episode is one group member however many rows (segments) it has: ``member[b]`` numbers the episode and
    ``group[b]`` its group, both from 0. Row weights are decided by the aggregation, not by the row count.

    - ``ids``        int64 [B, T]    token ids; padding is anything, it is never read through a mask
    - ``lengths``    int64 [B]       true length of each row; masks come from here, never from a pad id
    - ``mask``       bool  [B, T]    True where the policy sampled the token and it may be trained
    - ``behaviour``  float32 [B, T]  log-probability under the policy that sampled it, 0 where ``mask`` is False
    - ``turn``       int64 [B, T]    0-based turn of each token
    - ``version``    int64 [B, T]    policy version that sampled the token, -1 where not sampled
    - ``member``     int64 [B]
    - ``group``      int64 [B]
    - ``reward``     float64 [M]     one per member
    - ``truncated``  bool [M]        the member ended by a limit
    - ``advantage``  float32 [B, T]  filled by the estimator, 0 where ``mask`` is False
    """

    ids: Tensor
    lengths: Tensor
    mask: Tensor
    behaviour: Tensor
    turn: Tensor
    version: Tensor
    member: Tensor
    group: Tensor
    reward: Tensor
    truncated: Tensor
    advantage: Tensor
    episodes: list[str] = field(default_factory=list[str])

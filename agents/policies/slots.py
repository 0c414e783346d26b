"""A key/value cache in fixed rows ("slots"), one per token stream, that a transformers model can write through.

Every row has its own length, so streams of different lengths decode in one batch, and a stream that comes back with
more tokens (the next turn of an episode) pays only for the new ones. Any decoder whose attention calls
``cache.update(keys, values, layer, ...)`` works; attention is over positions ``[0, length)`` of the row itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class SlotCache:
    """Keys and values of shape [slots, kv heads, capacity, head dim] per layer.

    ``select`` says which rows the next forward pass writes and at which positions.
    """

    def __init__(self, layers: int, slots: int, kv_heads: int, head_dim: int, capacity: int, like: Tensor) -> None:
        shape = (slots, kv_heads, capacity, head_dim)
        self.keys = [torch.zeros(shape, dtype=like.dtype, device=like.device) for _ in range(layers)]
        self.values = [torch.zeros_like(k) for k in self.keys]
        self.capacity = capacity
        self._rows: Tensor = torch.zeros(0, dtype=torch.long)
        self._positions: Tensor = torch.zeros(0, 0, dtype=torch.long)
        self._length = 0
        self._prefix = False

    def select(self, rows: list[int], positions: Tensor, length: int) -> None:
        """The next pass has one batch row per entry of ``rows``; ``positions`` is [n, q]; ``length`` keys are read."""
        self._rows = torch.tensor(rows)
        self._positions = positions
        self._length = length
        self._prefix = rows == list(range(len(rows)))

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first ``length`` positions of one row to another."""
        for store in (*self.keys, *self.values):
            store[target, :, :length] = store[source, :, :length]

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Called by the model's attention: store [n, heads, q, dim] and return all that the rows can attend to."""
        return self._store(self.keys[layer], keys), self._store(self.values[layer], values)

    def _store(self, store: Tensor, new: Tensor) -> Tensor:
        store[self._rows[:, None], :, self._positions] = new.transpose(1, 2)
        rows = store[: len(self._rows)] if self._prefix else store[self._rows]
        return rows[:, :, : self._length]

    def get_seq_length(self, *_: Any) -> int:
        """Unused by models that are given explicit positions; part of their cache interface."""
        return 0

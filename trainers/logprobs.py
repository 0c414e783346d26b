"""Log-probabilities of sampled tokens: shared prefixes computed once, and never logits for a whole batch.

The trunk runs over the rows' token tree (``prefix.py``), so a prompt that a group shares costs what one row costs.
The head runs on the hidden states of trainable positions only, a chunk at a time, and is computed again in the
backward pass, in float32 whatever the trunk computes in. Peak memory is chunk x vocabulary instead of batch x time x
vocabulary.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor

from forkgym.agents.policies.support import refuse_unsupported
from forkgym.trainers.prefix import pack

CHUNK = 256
"""Positions per head call: fastest on CPU at a vocabulary of 49,152 (caches), 50 MB of float32 logits."""


def token_logprobs(
    model: Any, ids: Tensor, mask: Tensor, *, temperature: float = 1.0, chunk: int = CHUNK
) -> tuple[Tensor, Tensor]:
    """Log-probability of each trainable token, and the entropy of the distribution it was drawn from.

    ``ids`` int64 [B, T] right-padded, ``mask`` bool [B, T]; returns two float32 tensors [N] in row-major order of
    ``mask``. Both refer to the distribution at ``temperature``. Gradients flow through the first only. ``model`` is a
    causal language model of transformers. Padding, and what follows a row's last trainable token, is never computed.
    Raises ``ConfigError`` for a model that does not compute packed rows exactly.
    """
    if bool(mask[:, :1].any()):
        raise ValueError("the first token of a row has no context and cannot be trained")
    refuse_unsupported(model, mask.shape[1])
    if not bool(mask.any()):
        return torch.zeros(0), torch.zeros(0)
    rows, columns = mask.nonzero(as_tuple=True)
    picked, targets = hidden_states(model.base_model, ids, rows, columns - 1), ids[rows, columns]
    head = model.get_output_embeddings()
    recompute = cast("Any", torch.utils.checkpoint.checkpoint)
    parts: list[tuple[Tensor, Tensor]] = []
    for start in range(0, targets.numel(), chunk):
        arguments = (picked[start : start + chunk], targets[start : start + chunk], head, temperature)
        if torch.is_grad_enabled():
            parts.append(recompute(_head_chunk, *arguments, use_reentrant=False))
        else:
            parts.append(_head_chunk(*arguments))
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])


def hidden_states(trunk: Any, ids: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The last hidden state [N, D] at each position (``rows[n]``, ``columns[n]``) of ``ids`` [B, T], right-padded.

    What follows a row's last position asked for is never computed.
    """
    read = torch.zeros(len(ids), dtype=torch.int64).scatter_reduce(0, rows, columns + 1, "amax")
    tree = pack(ids, read)
    hidden = trunk(
        input_ids=tree.ids, position_ids=tree.positions, attention_mask=tree.attends, use_cache=False
    ).last_hidden_state[0]
    return hidden[tree.node[rows, columns]]


def _head_chunk(hidden: Tensor, targets: Tensor, head: Any, temperature: float) -> tuple[Tensor, Tensor]:
    with torch.autocast(hidden.device.type, enabled=False):
        logits = F.linear(hidden.float(), head.weight.float(), head.bias)
    scores = F.log_softmax(logits / temperature, dim=-1)
    with torch.no_grad():
        entropy = -(scores.exp() * scores).sum(-1)
    return scores.gather(1, targets[:, None])[:, 0], entropy

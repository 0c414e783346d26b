"""Chunked log-probabilities against the naive softmax over full logits, on a tiny random Llama."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from forkgym.errors import ConfigError
from forkgym.trainers.logprobs import token_logprobs


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    return LlamaForCausalLM(config).eval()


IDS = torch.tensor([[5, 9, 33, 2, 7, 7, 1], [11, 4, 60, 0, 0, 0, 0]])
MASK = torch.tensor([[0, 1, 1, 0, 0, 1, 1], [0, 1, 1, 0, 0, 0, 0]], dtype=torch.bool)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("chunk", [1, 4, 256])
def test_equals_the_naive_computation(model: Any, temperature: float, chunk: int) -> None:
    logits = model(input_ids=IDS).logits.float() / temperature
    scores = F.log_softmax(logits[:, :-1], -1)
    naive = scores.gather(-1, IDS[:, 1:, None])[..., 0][MASK[:, 1:]]
    naive_entropy = torch.distributions.Categorical(logits=logits[:, :-1]).entropy()[MASK[:, 1:]]
    gradients: list[list[torch.Tensor]] = []
    logp, entropy = token_logprobs(model, IDS, MASK, temperature=temperature, chunk=chunk)
    for value in (naive, logp):
        model.zero_grad()
        (value * torch.arange(6)).sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    assert torch.allclose(logp, naive, atol=1e-5)
    assert torch.allclose(entropy, naive_entropy, atol=1e-5)
    assert not entropy.requires_grad
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*gradients, strict=True))


def test_padding_changes_nothing(model: Any) -> None:
    alone, _ = token_logprobs(model, IDS[1:, :3], MASK[1:, :3])
    together, _ = token_logprobs(model, torch.cat([IDS, torch.full((2, 5), 96)], 1), F.pad(MASK, (0, 5)))
    assert torch.allclose(alone, together[4:], atol=1e-6)


def test_no_trainable_token_is_an_empty_result(model: Any) -> None:
    logp, entropy = token_logprobs(model, IDS, torch.zeros_like(MASK))
    assert logp.shape == entropy.shape == (0,)


def test_the_first_token_cannot_be_trained(model: Any) -> None:
    with pytest.raises(ValueError, match="no context"):
        token_logprobs(model, IDS, torch.ones_like(MASK))


def test_attention_that_misreads_the_mask_is_refused() -> None:
    sizes: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    sizes |= {"attn_implementation": "eager", "num_attention_heads": 1, "vocab_size": 97}
    config = LlamaConfig(**sizes)
    with pytest.raises(ConfigError, match="sdpa"):
        token_logprobs(LlamaForCausalLM(config), IDS, MASK)

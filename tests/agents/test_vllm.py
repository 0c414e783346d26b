"""vLLM itself, in this process, on a real model: run where vLLM is installed (``docs/policies.md`` says how)."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from forkgym.agents.base import Completion, SamplingParams
from forkgym.agents.errors import ContextLengthError, PolicyError
from forkgym.agents.models import load_language_model, model_folder
from forkgym.agents.policies.opening import open_policy
from forkgym.agents.policies.vllm import VLLMPolicy
from forkgym.errors import MissingExtraError

INSTALLED = importlib.util.find_spec("vllm") is not None
needs_vllm = pytest.mark.skipif(not INSTALLED, reason="vLLM is not installed")
PROMPT = list(range(1000, 1030))
pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's own


@pytest.mark.skipif(INSTALLED, reason="vLLM is installed")
def test_without_vllm_the_extra_is_named() -> None:
    with pytest.raises(MissingExtraError, match=r"pip install 'forkgym\[vllm\]'"):
        open_policy("vllm:smollm2-135m")


@pytest.fixture(scope="module")
def policy() -> Iterator[VLLMPolicy]:
    with VLLMPolicy(model_folder("smollm2-135m"), dtype="float32", slots=8, context=128, eager=True) as engine:
        yield engine


@pytest.fixture(scope="module")
def model() -> Any:
    return load_language_model("smollm2-135m").model


def distance(model: Any, completion: Completion, temperature: float = 1.0) -> float:
    """Largest difference from the log-probabilities of a plain forward pass."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([PROMPT + list(completion.ids)])).logits[0]
    scores = torch.log_softmax(logits / temperature, -1)
    again = [scores[len(PROMPT) + k - 1, token].item() for k, token in enumerate(completion.ids)]
    return max(abs(a - b) for a, b in zip(again, completion.logprobs, strict=True))


@needs_vllm
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_the_model(policy: VLLMPolicy, model: Any, temperature: float) -> None:
    for completion in policy.generate([PROMPT] * 3, SamplingParams(16, temperature, seed=1)):
        assert len(completion.ids) == 16
        assert distance(model, completion, temperature) < 1e-3


@needs_vllm
def test_a_cut_distribution_a_seed_and_the_ends(policy: VLLMPolicy) -> None:
    [sure] = policy.generate([PROMPT], SamplingParams(4, top_k=1))
    assert sure.logprobs == pytest.approx([0.0] * 4, abs=1e-5)
    [free] = policy.generate([PROMPT], SamplingParams(12, seed=3))
    assert policy.generate([PROMPT], SamplingParams(12, seed=3)) == [free]
    end = free.ids[5]
    [ended] = policy.generate([PROMPT], SamplingParams(12, seed=3, stop_ids=(end,)))
    assert (ended.ids, ended.finish_reason) == (free.ids[: free.ids.index(end) + 1], "stop")
    [full] = policy.generate([PROMPT * 4], SamplingParams(50, seed=0))
    assert (len(full.ids), full.finish_reason) == (128 - 120, "length")
    with pytest.raises(ContextLengthError, match="128"):
        policy.generate([[5] * 128], SamplingParams())
    with pytest.raises(PolicyError, match="out of vocabulary"):
        policy.generate([[10**6]], SamplingParams())
    tokenizer = open_tokenizer()
    text = tokenizer.decode(free.ids)
    [stopped] = policy.generate([PROMPT], SamplingParams(12, seed=3, stop=(text[3:6],)))
    assert stopped.finish_reason == "stop"
    assert tokenizer.decode(stopped.ids[:-1]).find(text[3:6]) == -1 < tokenizer.decode(stopped.ids).find(text[3:6])


def open_tokenizer() -> Any:
    return load_language_model("smollm2-135m").tokenizer


@needs_vllm
def test_new_weights_reach_every_layer_and_the_tied_head(policy: VLLMPolicy, model: Any) -> None:
    """vLLM's own reload leaves a packed copy of a tied output head as it was."""
    version = policy.version
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * parameter.std() * 0.2)
    with pytest.raises(PolicyError, match="no such weights"):
        policy.update({"nonsense": torch.zeros(1)})
    assert policy.update(model.state_dict()) == version + 1
    [completion] = policy.generate([PROMPT], SamplingParams(16, seed=1))
    assert completion.version == version + 1
    assert distance(model, completion) < 1e-3
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(1.3)
    policy.update({"model.embed_tokens.weight": model.model.embed_tokens.weight})
    assert distance(model, policy.generate([PROMPT], SamplingParams(16, seed=1))[0]) < 1e-3


@needs_vllm
def test_what_is_under_way_ends_before_new_weights_come(policy: VLLMPolicy) -> None:
    version, done = policy.version, list[Completion]()
    threads = [
        threading.Thread(target=lambda n=n: done.extend(policy.generate([PROMPT], SamplingParams(60, seed=n))))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    policy.update({})
    for thread in threads:
        thread.join()
    assert {completion.version for completion in done} <= {version, version + 1}
    assert policy.generate([PROMPT], SamplingParams(2))[0].version == version + 1

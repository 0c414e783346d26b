"""The sampler and the trainer agree on a real model: the same tokens have the same log-probabilities."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from forkgym.agents.base import SamplingParams, Segment
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.models import LanguageModel, load_language_model
from forkgym.agents.policies.hf import HFPolicy
from forkgym.trainers.logprobs import token_logprobs

TASKS = ("Fix the off-by-one error in range(1, n).", "List the files.", "What does clamp(15, 0, 10) return?")
ANSWERS = ("total 8\n-rw-r--r-- 1 root root 141 clamp.py\n", "Traceback (most recent call last):\n  KeyError: 'x'\n")


@pytest.fixture(scope="module")
def language() -> LanguageModel:
    return load_language_model("smollm2-135m")


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_rollout_and_recomputed_logprobs_agree_over_turns(language: LanguageModel, temperature: float) -> None:
    """Correlation at least 0.999, at most 1e-3 apart, in float32: prompts of different lengths at once, three turns
    each over kept keys and values, against the trainer's own packed forward pass."""
    chat = ChatML(language.tokenizer)
    segments = [Segment() for _ in TASKS]

    def converse(n: int, engine: HFPolicy) -> None:
        segment = segments[n]
        segment.append_prompt(chat.start([{"role": "user", "content": TASKS[n]}]), 0)
        for turn in range(3):
            params = SamplingParams(16 + 4 * n, temperature, seed=10 * n + turn, stop_ids=chat.stop_ids)
            [completion] = engine.generate([segment.ids], params)
            segment.append_completion(completion, turn)
            answer = chat.extend(segment.ids, [{"role": "user", "content": ANSWERS[(n + turn) % 2]}])
            segment.append_prompt(answer[len(segment.ids) :], turn)

    with HFPolicy(language.model, dtype=torch.float32, slots=4, context=512) as engine:
        threads = [threading.Thread(target=converse, args=(n, engine)) for n in range(len(TASKS))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        prefilled = engine.tokens_prefilled
    width = max(len(segment.ids) for segment in segments)
    ids = torch.tensor([segment.ids + [0] * (width - len(segment.ids)) for segment in segments])
    mask = torch.tensor([segment.sampled + [False] * (width - len(segment.ids)) for segment in segments])
    with torch.no_grad():
        again, _ = token_logprobs(language.model, ids, mask, temperature=temperature)
    sampled = np.array([p for segment in segments for p, s in zip(segment.logprobs, segment.sampled, strict=True) if s])
    assert len(sampled) > 100
    assert np.corrcoef(sampled, again.numpy())[0, 1] >= 0.999
    assert np.abs(sampled - again.numpy()).max() <= 1e-3
    # Each token was computed about once: later turns start from what is kept.
    assert prefilled < sum(len(segment.ids) for segment in segments)

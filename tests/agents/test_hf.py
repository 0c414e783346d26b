"""The in-process engine, against transformers' own full forward pass on a tiny random model."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from forkgym.agents.base import Completion, SamplingParams
from forkgym.agents.errors import ContextLengthError, PolicyError
from forkgym.agents.policies.hf import HFPolicy
from forkgym.errors import ConfigError

VOCABULARY = 300


LONG = 1024  # tokens that the tiny model takes


def tiny(seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=LONG,
        initializer_range=0.5,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    return tiny(0)


@pytest.fixture
def policy(model: LlamaForCausalLM) -> Iterator[HFPolicy]:
    with HFPolicy(model, dtype=torch.float32, slots=4, context=64) as engine:
        yield engine


def recomputed(model: LlamaForCausalLM, prompt: list[int], completion: Completion, temperature: float) -> list[float]:
    """Log-probabilities of a completion by one full pass without any cache."""
    ids = torch.tensor([prompt + list(completion.ids)])
    with torch.no_grad():
        scores = torch.log_softmax(model(input_ids=ids).logits[0] / temperature, -1)
    return [scores[len(prompt) + k - 1, token].item() for k, token in enumerate(completion.ids)]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_a_full_forward_pass(
    model: LlamaForCausalLM, policy: HFPolicy, temperature: float
) -> None:
    prompts = [[5, 6, 7], [9] * 20, [1, 2], [5, 6, 7, 8, 9], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], [3]]
    params = SamplingParams(max_tokens=12, temperature=temperature, seed=3)
    for prompt, completion in zip(prompts, policy.generate(prompts, params), strict=True):
        assert len(completion.ids) == 12
        assert completion.logprobs == pytest.approx(recomputed(model, prompt, completion, temperature), abs=1e-4)


def test_greedy_equals_transformers_generate(model: LlamaForCausalLM, policy: HFPolicy) -> None:
    prompt = [4, 8, 15, 16, 23, 42]
    plain: Any = model
    expected = plain.generate(torch.tensor([prompt]), max_new_tokens=15, do_sample=False, eos_token_id=None)
    (completion,) = policy.generate([prompt], SamplingParams(max_tokens=15, temperature=0.0))
    assert list(completion.ids) == expected[0, len(prompt) :].tolist()


def test_a_seed_gives_the_same_tokens_whatever_else_is_in_the_batch(policy: HFPolicy) -> None:
    params = SamplingParams(max_tokens=10, seed=11)
    (alone,) = policy.generate([[7, 7, 7]], params)
    results: dict[int, Completion] = {}

    def ask(n: int) -> None:
        prompt, seed = ([7, 7, 7], 11) if n == 0 else ([n, 1, 2, 3], n)
        (results[n],) = policy.generate([prompt], SamplingParams(max_tokens=10, seed=seed))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results[0].ids == alone.ids
    assert len({completion.ids for completion in results.values()}) == 9


def test_the_next_turn_computes_only_its_new_tokens(model: LlamaForCausalLM, policy: HFPolicy) -> None:
    prompt = list(range(1, 31))
    (first,) = policy.generate([prompt], SamplingParams(max_tokens=5, seed=1))
    before = policy.tokens_prefilled
    longer = [*prompt, *first.ids, 50, 51, 52]
    (second,) = policy.generate([longer], SamplingParams(max_tokens=5, seed=2))
    # The last sampled token was never fed back, so it counts as new.
    assert policy.tokens_prefilled - before == 4
    assert second.logprobs == pytest.approx(recomputed(model, longer, second, 1.0), abs=1e-4)


def test_a_shared_prompt_is_computed_once(model: LlamaForCausalLM, policy: HFPolicy) -> None:
    prompt = list(range(1, 31))
    completions = policy.generate([prompt] * 3, SamplingParams(max_tokens=6, seed=5))
    assert policy.tokens_prefilled == 30 + 1 + 1
    assert len({completion.ids for completion in completions}) == 3
    for completion in completions:
        assert completion.logprobs == pytest.approx(recomputed(model, prompt, completion, 1.0), abs=1e-4)


def test_new_weights_are_used_at_once_and_stamped(model: LlamaForCausalLM, policy: HFPolicy) -> None:
    prompt = list(range(1, 21))
    policy.generate([prompt], SamplingParams(max_tokens=3, seed=1))
    other = tiny(1)
    assert policy.update(other.state_dict()) == 1
    (completion,) = policy.generate([prompt], SamplingParams(max_tokens=8, seed=1))
    assert completion.version == 1
    assert completion.logprobs == pytest.approx(recomputed(other, prompt, completion, 1.0), abs=1e-4)
    with pytest.raises(PolicyError, match=r"no such weights.*nonsense"):
        policy.update({"nonsense": torch.zeros(1)})


def test_a_sampled_stop_token_is_part_of_the_completion(policy: HFPolicy) -> None:
    params = SamplingParams(max_tokens=20, temperature=0.0)
    (free,) = policy.generate([[4, 8, 15]], params)
    stop = free.ids[4]
    (stopped,) = policy.generate([[4, 8, 15]], SamplingParams(max_tokens=20, temperature=0.0, stop_ids=(stop,)))
    assert stopped.ids == free.ids[: free.ids.index(stop) + 1]
    assert (free.finish_reason, stopped.finish_reason) == ("length", "stop")


def test_the_window_ends_a_completion_and_refuses_a_full_prompt(policy: HFPolicy) -> None:
    (completion,) = policy.generate([[1] * 60], SamplingParams(max_tokens=50, seed=0))
    assert (len(completion.ids), completion.finish_reason) == (4, "length")
    with pytest.raises(ContextLengthError, match="64"):
        policy.generate([[1] * 64], SamplingParams())
    with pytest.raises(PolicyError, match="empty"):
        policy.generate([[]], SamplingParams())


def test_wrong_ids_are_refused_before_they_reach_the_engine(policy: HFPolicy) -> None:
    with pytest.raises(PolicyError, match=r"\[0, 300\)"):
        policy.generate([[1, VOCABULARY]], SamplingParams())
    assert len(policy.generate([[1]], SamplingParams(max_tokens=2, seed=0))[0].ids) == 2


def test_models_that_would_not_be_computed_exactly_are_refused() -> None:
    eager, biased = tiny(0), tiny(0)
    eager.set_attn_implementation("eager")
    biased.lm_head.bias = torch.nn.Parameter(torch.zeros(VOCABULARY))
    sizes: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "head_dim": 8}
    heads: dict[str, Any] = {"num_attention_heads": 1, "num_key_value_heads": 1}
    windowed: Any = MistralForCausalLM(MistralConfig(vocab_size=9, sliding_window=16, **sizes, **heads))
    with pytest.raises(ConfigError, match="sdpa"):
        HFPolicy(eager)
    with pytest.raises(ConfigError, match="bias"):
        HFPolicy(biased)
    with pytest.raises(ConfigError, match="last 16 tokens"):
        HFPolicy(windowed, context=17)
    HFPolicy(windowed, context=16).close()


@pytest.mark.parametrize(
    "params",
    [
        {"max_tokens": 0},
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"top_p": 0.0},
        {"top_k": -1},
        {"stop": ("",)},
    ],
)
def test_sampling_that_means_nothing_is_refused(policy: HFPolicy, params: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be"):
        policy.generate([[1]], SamplingParams(**params))


@pytest.mark.parametrize(("top_k", "top_p"), [(5, 1.0), (0, 0.6), (20, 0.5)])
def test_logprobs_are_those_of_the_cut_distribution(
    model: LlamaForCausalLM, policy: HFPolicy, top_k: int, top_p: float
) -> None:
    """Each probability is the tempered one over the mass of the tokens that could be drawn, counted here by hand."""
    prompt = [5, 6, 7]
    params = SamplingParams(max_tokens=12, temperature=0.8, seed=3, top_k=top_k, top_p=top_p)
    (completion,) = policy.generate([prompt], params)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + list(completion.ids)])).logits[0] / 0.8
    for k, (token, logprob) in enumerate(zip(completion.ids, completion.logprobs, strict=True)):
        weights = sorted(torch.exp(logits[len(prompt) + k - 1].double()).tolist(), reverse=True)
        weights = weights[: top_k or None]
        whole, held, n = sum(weights), 0.0, 0
        while held < top_p * whole and n < len(weights):
            held += weights[n]
            n += 1
        own = torch.exp(logits[len(prompt) + k - 1, token].double()).item()
        assert own >= weights[n - 1] * (1 - 1e-5)
        assert logprob == pytest.approx(math.log(own / held), abs=1e-4)


class Letters:
    """A tokenizer double: each id is one letter."""

    size = VOCABULARY

    def encode(self, text: str) -> list[int]:
        return [ord(c) - 97 for c in text]

    def decode(self, ids: Any) -> str:
        return "".join(chr(97 + i % 26) for i in ids)

    def special(self, name: str) -> int:
        raise ConfigError(name)


def test_a_stop_text_ends_a_completion_with_the_token_that_completes_it(model: LlamaForCausalLM) -> None:
    greedy = SamplingParams(max_tokens=20, temperature=0.0)
    with HFPolicy(model, dtype=torch.float32, slots=2, context=64, tokenizer=Letters()) as engine:
        (free,) = engine.generate([[4, 8, 15]], greedy)
        text = Letters().decode(free.ids)
        stop = text[5:8]
        (stopped,) = engine.generate([[4, 8, 15]], replace(greedy, stop=("never", stop)))
    assert stopped.ids == free.ids[: text.index(stop) + 3]
    assert stopped.logprobs == pytest.approx(free.logprobs[: len(stopped.ids)], abs=1e-4)
    assert (free.finish_reason, stopped.finish_reason) == ("length", "stop")


def test_stop_texts_need_a_tokenizer(policy: HFPolicy) -> None:
    with pytest.raises(ConfigError, match="give the policy a tokenizer"):
        policy.generate([[1]], SamplingParams(stop=("x",)))


def test_weights_of_another_shape_change_nothing(model: LlamaForCausalLM, policy: HFPolicy) -> None:
    with pytest.raises(PolicyError, match=r"shape \(1,\), not \(32,\)"):
        policy.update({"model.embed_tokens.weight": torch.zeros(VOCABULARY, 32), "model.norm.weight": torch.ones(1)})
    (completion,) = policy.generate([[4, 5]], SamplingParams(max_tokens=3, seed=1))
    assert completion.version == 0
    assert completion.logprobs == pytest.approx(recomputed(model, [4, 5], completion, 1.0), abs=1e-4)


def test_an_embedding_that_is_also_the_head_is_updated_as_both(policy: HFPolicy) -> None:
    other = tiny(1)
    policy.update(dict(other.named_parameters()))  # a tied weight has one name here
    (completion,) = policy.generate([[4, 5]], SamplingParams(max_tokens=5, seed=1))
    assert completion.logprobs == pytest.approx(recomputed(other, [4, 5], completion, 1.0), abs=1e-4)


def test_an_update_under_way_leaves_nothing_of_the_old_weights(model: LlamaForCausalLM) -> None:
    # Long enough that the update comes in the middle, however late a busy machine lets this thread run.
    other, prompt = tiny(1), list(range(1, 11))
    with HFPolicy(model, dtype=torch.float32, slots=2, context=LONG) as engine:
        got: list[Completion] = []
        thread = threading.Thread(
            target=lambda: got.extend(engine.generate([prompt], SamplingParams(max_tokens=LONG - 20, seed=3)))
        )
        thread.start()
        while engine.tokens_sampled < 3:
            time.sleep(0.001)
        engine.update(other.state_dict())
        thread.join()
        (first,) = got
        old, new = (recomputed(m, prompt, first, 1.0) for m in (model, other))
        switch = next(k for k, value in enumerate(first.logprobs) if abs(value - old[k]) > 1e-3)
        assert 3 <= switch < LONG - 20
        assert first.logprobs[switch:] == pytest.approx(new[switch:], abs=1e-4)
        assert first.version == 0
        longer = [*prompt, *first.ids[:60], 7, 8]
        (second,) = engine.generate([longer], SamplingParams(max_tokens=5, seed=4))
        assert second.version == 1
        assert second.logprobs == pytest.approx(recomputed(other, longer, second, 1.0), abs=1e-4)


def test_closing_and_a_broken_engine_fail_callers_instead_of_hanging(model: LlamaForCausalLM) -> None:
    policy = HFPolicy(model, dtype=torch.float32, slots=2, context=64)
    with pytest.raises(PolicyError, match="engine stopped"):
        policy.generate([[1]], SamplingParams(stop_ids=None))  # pyright: ignore[reportArgumentType]
    with pytest.raises(PolicyError, match="closed"):
        policy.generate([[1]], SamplingParams())
    policy.close()
    policy.close()


def test_many_conversations_of_many_lengths_at_once_stay_exact(model: LlamaForCausalLM) -> None:
    failures: list[str] = []

    def converse(n: int, engine: HFPolicy) -> None:
        stream = [1, 2, 3, *range(10, 10 + n % 5)]
        for turn in range(3):
            params = SamplingParams(max_tokens=1 + (n * 7 + turn * 3) % 9, seed=100 * n + turn)
            (completion,) = engine.generate([stream], params)
            if completion.logprobs != pytest.approx(recomputed(model, stream, completion, 1.0), abs=1e-4):
                failures.append(f"conversation {n}, turn {turn}")
            stream = [*stream, *completion.ids, 20 + n, 21]

    with HFPolicy(model, dtype=torch.float32, slots=5, context=64) as engine:
        threads = [threading.Thread(target=converse, args=(n, engine)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []

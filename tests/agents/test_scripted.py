from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from forkgym.agents.base import Completion, SamplingParams
from forkgym.agents.errors import ContextLengthError, PolicyError
from forkgym.agents.policies.scripted import Call, ScriptedPolicy
from forkgym.agents.registry import make_agent, make_policy
from forkgym.errors import ConfigError

STOP = 257
PARAMS = SamplingParams(max_tokens=10, stop_ids=(STOP,))


def test_texts_by_turn_with_stop_token_and_distinct_logprobs() -> None:
    policy = ScriptedPolicy(["ab", "c"], version=3)
    first = policy.generate([[1, 2]], PARAMS)[0]
    assert first == Completion((97, 98, STOP), (-1 / 128, -2 / 128, -3 / 128), "stop", 3)
    assert policy.generate([[1, 2, *first.ids, 9]], PARAMS)[0].ids == (99, STOP)
    assert [call.turn for call in policy.calls] == [0, 1]
    with pytest.raises(PolicyError, match="script has 2 turns, and turn 3"):
        policy.generate([[1, 2, *first.ids, 9, 99, STOP, 9]], PARAMS)


def test_cut_text_ends_by_length_without_a_stop_token() -> None:
    assert ScriptedPolicy(["abc"]).generate([[1]], SamplingParams(max_tokens=3, stop_ids=(STOP,)))[0] == Completion(
        (97, 98, 99), (-1 / 128, -2 / 128, -3 / 128), "length"
    )


def test_a_stop_text_ends_what_is_said() -> None:
    policy = ScriptedPolicy(["say ENDmore"])
    first = policy.generate([[1]], SamplingParams(stop=("END", "never"), stop_ids=(STOP,)))[0]
    assert (bytes(first.ids), first.finish_reason) == (b"say END", "stop")
    cut = ScriptedPolicy(["say ENDmore"]).generate([[1]], SamplingParams(stop=("END",), max_tokens=6))[0]
    assert (bytes(cut.ids), cut.finish_reason) == (b"say EN", "length")


def test_window_limits_the_completion_and_then_refuses() -> None:
    policy = ScriptedPolicy(["abc"], window=4)
    assert policy.generate([[1, 2]], PARAMS)[0].ids == (97, 98)
    with pytest.raises(ContextLengthError, match="4 tokens; the window holds 4"):
        policy.generate([[1, 2, 3, 4]], PARAMS)


def test_function_completion_and_exception() -> None:
    exact = Completion((256, 257), (-0.5, -0.25), "stop")

    def script(call: Call) -> str | Completion | Exception:
        return {"a": "say", "b": exact, "c": OSError("gone")}[call.text]

    policy = ScriptedPolicy(script)
    assert policy.tokenizer.decode(policy.generate([b"a"], PARAMS)[0].ids) == "say<|im_end|>"
    assert policy.generate([b"b"], PARAMS) == [exact]
    with pytest.raises(OSError, match="gone"):
        policy.generate([b"c"], PARAMS)
    assert len(policy.calls) == 3


def test_many_threads_each_get_their_own_turn() -> None:
    policy = ScriptedPolicy(["x", "y", "z"])

    def episode(n: int) -> str:
        ids = [n, n]
        for _ in range(3):
            ids += policy.generate([ids], PARAMS)[0].ids
        return policy.tokenizer.decode([i for i in ids[2:] if i != STOP])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(episode, range(32))) == ["xyz"] * 32
    assert len(policy.calls) == 96


def test_by_name() -> None:
    policy = make_policy({"name": "scripted", "script": ["hi"]})
    assert policy.version == 0
    assert policy.generate([[1]], PARAMS)[0].ids == (104, 105, STOP)
    with pytest.raises(ConfigError, match="did you mean 'scripted'"):
        make_policy("scriptd")
    with pytest.raises(ConfigError, match="unexpected keyword argument 'temprature'"):
        make_policy({"name": "scripted", "script": [], "temprature": 1})
    with pytest.raises(ConfigError, match="needs a text under 'name'"):
        make_policy({"script": []})
    with pytest.raises(ConfigError, match="unknown agent"):
        make_agent("tols")

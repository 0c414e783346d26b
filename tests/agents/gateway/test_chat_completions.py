"""Chat completions through the gateway: what a client sees, and the exact ids behind it."""

from __future__ import annotations

import pytest

from forkgym.agents.base import Completion, SamplingParams
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.agents.tokenizers import ByteTokenizer

USER = {"role": "user", "content": "hi"}
STOP = 257  # <|im_end|> of the byte tokenizer


def test_one_answer(rig):
    one = rig(["hello"])
    answer = one.chat([USER])
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    body = answer.json
    assert (body["object"], body["model"]) == ("chat.completion", "any")
    assert body["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop", "logprobs": None}
    ]
    prompt = [256, *b"user\nhi", STOP, *b"\n", 256, *b"assistant\n"]
    assert body["usage"] == {"prompt_tokens": len(prompt), "completion_tokens": 6, "total_tokens": len(prompt) + 6}
    (segment,) = one.session.segments()
    assert segment.ids == [*prompt, *b"hello", STOP]
    assert segment.sampled == [False] * len(prompt) + [True] * 6
    assert segment.logprobs[-6:] == [-(i + 1) / 128 for i in range(6)]
    assert set(segment.version[-6:]) == {0}
    assert set(segment.turn) == {0}


def test_a_stream_says_the_same(rig):
    text = "a long answer, " * 20
    whole, streamed = rig([text]), rig([text])
    whole.chat([USER])
    answer = streamed.chat([USER], stream=True, stream_options={"include_usage": True})
    assert answer.text.endswith("data: [DONE]\n\n")
    *chunks, last = answer.events
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta.get("content", "") for delta in deltas) == text
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-2:] == [None, "stop"]
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == len(text) + 1
    assert streamed.session.segments() == whole.session.segments()


def test_no_usage_is_streamed_unless_asked_for(rig):
    events = rig(["x"]).chat([USER], stream=True).events
    assert all("usage" not in event and len(event["choices"]) == 1 for event in events)


def test_E01_ids_are_kept_over_turns(rig):
    """Case E01: ids that decode to the text of another id stay as they were sampled."""
    tokenizer = ByteTokenizer([(b"a", b"b"), (b"c", b"d"), (b"ab", b"cd")])
    end = tokenizer.special("<|im_end|>")
    assert (tokenizer.encode("abcd"), end) == ([258], 260)
    turns = [Completion((256, 257, end), (-0.5, -0.25, -0.1), "stop", 3), Completion((258, end), (-1.0, -2.0), "stop")]
    policy = ScriptedPolicy(turns, tokenizer)
    one = rig(None, policy=policy, format=ChatML(tokenizer))
    first = one.chat([USER]).json["choices"][0]["message"]
    assert first["content"] == "abcd"
    assert (
        one.chat([USER, first, {"role": "user", "content": "more"}]).json["choices"][0]["message"]["content"] == "abcd"
    )
    before, after = (list(call.ids) for call in policy.calls)
    assert after[: len(before) + 3] == [*before, 256, 257, end]
    assert one.sampled() == [
        (256, -0.5, 3), (257, -0.25, 3), (end, -0.1, 3), (258, -1.0, 0), (end, -2.0, 0)
    ]  # fmt: skip
    (segment,) = one.session.segments()
    assert len(segment.ids) == len(segment.sampled) == len(segment.logprobs) == len(segment.version)
    assert segment.turn[len(before) + 2 :] == [0] * (len(after) - len(before) - 2) + [1, 1]
    assert not one.session.counts


def test_E10_assistant_messages_of_the_prompt_are_not_sampled(rig):
    """Case E10: only the five sampled ids are marked."""
    one = rig(["four"])
    one.chat([USER, {"role": "assistant", "content": "an example"}, USER])
    assert [id for id, *_ in one.sampled()] == [*b"four", STOP]


def test_the_runs_sampling_wins_and_the_difference_is_counted(rig):
    one = rig(["x", "y"], sampling=SamplingParams(max_tokens=50, temperature=0.7, top_k=5))
    one.chat([USER], temperature=0.7, max_tokens=20, seed=5)
    one.chat([{"role": "user", "content": "other"}], temperature=0.1, top_p=0.5, top_k=5, max_completion_tokens=99)
    first, second = (call.params for call in one.policy.calls)
    assert (first.temperature, first.top_p, first.top_k, first.max_tokens) == (0.7, 1.0, 5, 20)
    assert (second.temperature, second.top_p, second.top_k, second.max_tokens) == (0.7, 1.0, 5, 50)
    assert one.session.calls[1].ignored == ("overridden:temperature", "overridden:top_p")
    overridden = {k: v for k, v in one.session.counts.items() if k.startswith("overridden")}
    assert overridden == {"overridden:temperature": 1, "overridden:top_p": 1, "overridden:seed": 1}


def test_without_sampling_of_the_run_the_client_decides(rig):
    one = rig(["x"], sampling=None)
    one.chat([USER], temperature=0.3, top_p=0.9, top_k=-1, max_tokens=7)
    params = one.policy.calls[0].params
    assert (params.temperature, params.top_p, params.top_k, params.max_tokens) == (0.3, 0.9, 0, 7)
    assert not one.session.counts


def test_choices(rig):
    seeds = []

    def script(call):
        seeds.append(call.params.seed)
        return f"answer {len(seeds)}"

    one = rig(script)
    body = one.chat([USER], n=3).json
    assert [(c["index"], c["message"]["content"]) for c in body["choices"]] == [
        (0, "answer 1"), (1, "answer 2"), (2, "answer 3")
    ]  # fmt: skip
    assert len(set(seeds)) == 3
    assert body["usage"]["completion_tokens"] == 3 * 9
    assert len(one.session.segments()) == 3
    one.chat([USER, {"role": "assistant", "content": "answer 2"}, USER])
    assert [sum(s.sampled) for s in one.session.segments()] == [9, 18, 9]


def test_stop_texts_end_the_visible_text_only(rig):
    one = rig([Completion(tuple(b"one STOP"), (-1.0,) * 8, "stop")])
    choice = one.chat([USER], stop="STOP").json["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"], choice["stop_reason"]) == ("one ", "stop", "STOP")
    assert one.policy.calls[0].params.stop == ("STOP",)
    assert bytes(id for id, *_ in one.sampled()) == b"one STOP"


def test_a_turn_cut_by_max_tokens(rig):
    one = rig(["abcdef"])
    assert one.chat([USER], max_tokens=3).json["choices"][0]["finish_reason"] == "length"
    answer = one.chat([USER, {"role": "assistant", "content": "abc"}, USER])
    assert answer.status == 500  # the script has one turn
    assert one.session.ended == "engine: the script has 1 turns, and turn 2 was asked for"


def test_logprobs_and_ids_for_clients_that_ask(rig):
    one = rig(["ab"])
    body = one.chat([USER], logprobs=True, return_token_ids=True).json
    choice = body["choices"][0]
    assert choice["token_ids"] == [97, 98, STOP]
    assert body["prompt_token_ids"] == list(one.policy.calls[0].ids)
    assert [(t["token"], t["logprob"]) for t in choice["logprobs"]["content"]] == [
        ("a", -1 / 128), ("b", -2 / 128), ("", -3 / 128)
    ]  # fmt: skip


@pytest.mark.parametrize("way", ["path", "bearer", "x-api-key", "v1 twice"])
def test_ways_to_name_the_episode(rig, way):
    one = rig(["x"])
    body = {"messages": [USER]}
    if way == "path":
        assert one.send("/chat/completions", body).status == 200
    elif way == "v1 twice":
        assert one.send("/v1/v1/chat/completions", body).status == 200
    else:
        one.session.path = ""
        header = {"authorization": f"Bearer {one.session.key}"} if way == "bearer" else {"x_api_key": one.session.key}
        assert one.send("/v1/chat/completions", body, **header).status == 200
        assert one.send("/v1/chat/completions", body).status == 401
    assert len(one.session.calls) == 1


def test_models_and_the_root(rig):
    one = rig(["x"], gateway={"model": "small"})
    assert [m["id"] for m in one.send("/v1/models", method="GET").json["data"]] == ["small"]
    assert one.send("/v1/models/small", method="GET").json["id"] == "small"
    assert one.send("/v1/models/large", method="GET").status == 404
    assert one.send("/", method="HEAD").status == 200
    assert one.send("", method="GET").json == {"calls": 0, "waiting": 0, "sampled_tokens": 0, "ended": ""}
    assert one.send("/v1/nothing", {}).status == 404

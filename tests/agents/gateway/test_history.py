"""What clients do to history: differences without meaning keep the ids, rewrites open a stream under a named cause."""

from __future__ import annotations

import json
from typing import Any

import pytest

SYSTEM = {"role": "system", "content": "You work."}
USER = {"role": "user", "content": "Fix the bug."}
TOOLS = [{"type": "function", "function": {"name": "sh", "parameters": {"type": "object", "properties": {}}}}]
STOP = 257


def call(**arguments):
    return f'<tool_call>\n{{"name": "sh", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


class Talk:
    def __init__(self, one):
        self.rig, self.session = one, one.session

    def __call__(self, messages, tools=TOOLS, **options):
        answer = self.rig.chat(messages, tools=tools, **options)
        assert answer.status == 200, answer.text
        return answer.json["choices"][0]["message"]


@pytest.fixture
def talk(rig):
    """``talk(messages)``: the assistant's message, as the client was sent it. Replies are numbered."""
    count = []

    def script(call):
        count.append(call)
        return f"this is my reply number {len(count)}"

    one = rig(script)

    return Talk(one)


def check_once(one):
    """Every sampled token of the policy's answers stands in exactly one place; lists are of one length."""
    segments = one.session.segments()
    for s in segments:
        assert len(s.ids) == len(s.sampled) == len(s.logprobs) == len(s.version) == len(s.turn)
        assert s.turn == sorted(s.turn)
        assert not s.sampled[0]
    words = [one.format.tokenizer.encode(record.text) for record in one.session.calls]
    sampled = sorted(id for s in segments for id, mine in zip(s.ids, s.sampled, strict=True) if mine)
    assert sampled == sorted(id for ids in words for id in [*ids, STOP])
    # Each turn was sampled after exactly the ids that stand before it.
    prompts = {call.ids for call in one.policy.calls}
    for s in segments:
        for i in range(1, len(s.ids)):
            if s.sampled[i] and not s.sampled[i - 1]:
                assert tuple(s.ids[:i]) in prompts


def test_E05_reasoning_is_dropped_by_the_client(rig):
    """Case E05: both thoughts are trained once, under the context that they were sampled in, in one stream."""
    one = rig(["<think>look at f first</think>" + call(c="ls"), "<think>open f</think>" + call(c="cat f.py"), "ok"])
    first = one.chat([USER], tools=TOOLS).json["choices"][0]["message"]
    assert first["reasoning_content"] == "look at f first"
    del first["reasoning_content"]
    messages = [USER, first, {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "f.py"}]
    second = one.chat(messages, tools=TOOLS).json["choices"][0]["message"]
    del second["reasoning_content"]
    messages += [second, {"role": "tool", "tool_call_id": second["tool_calls"][0]["id"], "content": "x = 1"}]
    one.chat([*messages, {"role": "user", "content": "Bad format, try again."}], tools=TOOLS)
    assert len(one.session.segments()) == 1
    assert one.session.counts == {"kept:reasoning": 2}
    assert "Bad format, try again." in one.policy.calls[2].text
    assert "<think>look at f first</think>" in one.policy.calls[2].text
    check_once(one)


def test_replayed_json_with_another_key_order_makes_no_fork(rig):
    """Eight rollouts of three turns; arguments come back re-serialised, thoughts stripped: 8 streams, not 24."""
    turns = [f"<think>step {i}</think>" + call(path="a", content=1.0, n=i) for i in range(3)]
    for _ in range(8):
        one = rig(turns)
        messages: list[Any] = [SYSTEM, USER]
        for i in range(3):
            said = one.chat(messages, tools=TOOLS, stream=False).json["choices"][0]["message"]
            called = said["tool_calls"][0]
            assert json.loads(called["function"]["arguments"]) == {"path": "a", "content": 1, "n": i}
            called["function"]["arguments"] = f'{{"n":{i},"content":1,"path":"a"}}'
            messages.append({"role": "assistant", "content": None, "tool_calls": [called]})
            messages.append({"role": "tool", "tool_call_id": called["id"], "content": f"result {i}"})
        assert len(one.session.segments()) == 1
        assert one.session.counts == {"kept:arguments": 2, "kept:reasoning": 2}
        check_once(one)


def test_outer_white_space_and_call_ids_have_no_meaning(rig):
    one = rig(["  text \n", call(a=1), "end"])
    one.chat([USER], tools=TOOLS)
    said = {"role": "assistant", "content": "text"}
    called = one.chat([USER, said, USER], tools=TOOLS).json["choices"][0]["message"]
    called["tool_calls"][0]["id"] = "mine"
    called["content"] = ""
    one.chat([USER, said, USER, called, {"role": "tool", "tool_call_id": "mine", "content": "x"}], tools=TOOLS)
    assert len(one.session.segments()) == 1
    assert set(one.session.counts) <= {"kept:whitespace"}
    check_once(one)


def test_the_same_prompt_again_is_another_sample(talk):
    talk([USER])
    talk([USER], user="another body")
    assert talk.session.counts == {"resampled": 1}
    assert len(talk.session.segments()) == 2
    check_once(talk.rig)


def test_a_rewound_conversation(talk):
    first = talk([USER])
    talk([USER, first, {"role": "user", "content": "left"}])
    talk([USER, first, {"role": "user", "content": "right"}])
    assert talk.session.counts == {"rewound": 1}
    left, right = talk.session.segments()
    assert sum(left.sampled) == 2 * 26
    assert sum(right.sampled) == 26
    check_once(talk.rig)


def test_an_edited_reply_and_an_edited_answer(talk):
    first = talk([USER])
    more = {"role": "user", "content": "go on"}
    second = talk([USER, first, more])
    edited = {"role": "assistant", "content": "what I did not say"}
    talk([USER, first, more, edited, more])
    assert talk.session.counts == {"assistant_edited": 1}
    shorter = {"role": "user", "content": "[cut]"}
    talk([USER, first, shorter, second, more])
    assert talk.session.counts == {"assistant_edited": 1, "history_edited": 1}
    assert [sum(s.sampled) for s in talk.session.segments()] == [52, 26, 26]
    check_once(talk.rig)


def test_a_dropped_reply(talk):
    talk([SYSTEM, USER])
    talk([SYSTEM, USER, {"role": "user", "content": "That was no tool call."}])
    assert talk.session.counts == {"assistant_dropped": 1}


def chatter(talk, turns, system=SYSTEM, user=USER, tools=TOOLS):
    messages = [system, user]
    for i in range(turns):
        messages += [talk(messages, tools), {"role": "user", "content": f"next {i}"}]
    return messages


def test_compaction_by_a_window(talk):
    messages = chatter(talk, 3)
    talk([*messages[:2], *messages[4:]])
    assert talk.session.counts == {"compaction": 1}
    check_once(talk.rig)


def test_compaction_by_a_summary(talk):
    """The harness asks for a summary without tools, then begins anew with the model's own words."""
    messages = chatter(talk, 3)
    summary = talk([*messages, {"role": "user", "content": "Sum it up."}], [])["content"]
    fresh = talk([SYSTEM, {"role": "user", "content": f"So far: {summary}. Go on."}])
    assert talk.session.counts == {"aside": 1, "compaction": 1}
    assert [record.kind for record in talk.session.calls] == ["main"] * 3 + ["side", "main"]
    assert [sum(s.sampled) for s in talk.session.segments(include=("main",))] == [3 * 26, 26]
    assert len(talk.session.segments()) == 3
    talk([SYSTEM, {"role": "user", "content": f"So far: {summary}. Go on."}, fresh, USER])
    assert talk.session.counts == {"aside": 1, "compaction": 1}
    check_once(talk.rig)


def test_other_tools_and_another_system_prompt(talk):
    first = talk([SYSTEM, USER])
    other = [{"type": "function", "function": {"name": "more", "parameters": {"type": "object", "properties": {}}}}]
    talk([SYSTEM, USER, first, USER], TOOLS + other)
    talk([{"role": "system", "content": "It is Tuesday."}, USER, first, USER])
    assert talk.session.counts == {"tools_changed": 1, "system_changed": 1}
    assert {record.kind for record in talk.session.calls} == {"main"}
    check_once(talk.rig)


def test_a_title_before_the_task_is_a_side_call(talk):
    """As OpenCode does: the first request has no tools and another system prompt."""
    talk([{"role": "system", "content": "You write titles."}, USER], [])
    chatter(talk, 2)
    talk([{"role": "system", "content": "You write titles."}, {"role": "user", "content": "another"}], [])
    assert [record.kind for record in talk.session.calls] == ["side", "main", "main", "side"]
    assert talk.session.counts == {"side": 2}
    assert [sum(s.sampled) for s in talk.session.segments(include=("main",))] == [52]
    assert len(talk.session.segments()) == 3


def test_a_sub_agent(talk):
    messages = chatter(talk, 1)
    helper = {"role": "system", "content": "You search."}
    chatter(talk, 2, helper, {"role": "user", "content": "find f"}, TOOLS * 2)
    chatter(talk, 1, helper, {"role": "user", "content": "find g"}, TOOLS * 2)
    talk(messages)
    assert talk.session.counts == {"subagent": 2}
    assert [record.kind for record in talk.session.calls] == ["main", "subagent", "subagent", "subagent", "main"]
    assert [sum(s.sampled) for s in talk.session.segments(include=("main",))] == [52]
    assert [sum(s.sampled) for s in talk.session.segments(include=("subagent",))] == [52, 26]
    check_once(talk.rig)


def test_a_task_after_the_task(talk):
    chatter(talk, 1)
    talk([SYSTEM, {"role": "user", "content": "Something else."}])
    assert talk.session.counts == {"restart": 1}
    assert {record.kind for record in talk.session.calls} == {"main"}


def test_records_tell_steps(talk):
    """What a harness adapter makes steps of: what was new, what was said, how long it took."""
    first = talk([SYSTEM, USER])
    talk([SYSTEM, USER, first, {"role": "user", "content": "more"}])
    one, two = talk.session.calls
    assert (one.messages, two.messages) == ((SYSTEM, USER), ({"role": "user", "content": "more"},))
    assert one.turn.text == one.text == "this is my reply number 1"
    assert (one.dialect, one.finish, one.error, one.disconnected) == ("chat", "stop", "", False)
    assert two.prompt_tokens > one.prompt_tokens + 26
    assert two.sampled_tokens == 26
    assert one.seconds > 0

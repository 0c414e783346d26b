"""The same harness in other words: the model sees other names, the harness its own, and nothing is lost."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from forkgym.agents.gateway.disguise import HIDDEN, Names

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Use `{name}` well; see read_file too.",
            "parameters": {
                "type": "object",
                "properties": {
                    "file_path": {"type": "string"},
                    "command": {"type": "string"},
                    "n": {"type": "integer"},
                },
                "required": ["file_path"],
            },
        },
    }
    for name in ("bash", "read_file", "edit", "Glob")
]
SYSTEM = {"role": "system", "content": "Call read_file, then `bash`. Edit with bash; be glob."}
USER = {"role": "user", "content": "Fix `bash`."}


def shown_tools(prompt):
    """The tools as the model sees them, in order."""
    section = prompt.split("<tools>\n")[-1].split("\n</tools>")[0]
    return [json.loads(line)["function"] for line in section.split("\n")]


def test_an_episode_in_other_words(rig):
    seen = set()
    for vary in range(8):
        names: list[Any] = []

        def script(call, names=names):
            if call.turn:
                return "done"
            names.extend(shown_tools(call.text))
            keys = list(names[0]["parameters"]["properties"])
            call = {"name": names[0]["name"], "arguments": {keys[0]: "a", keys[2]: 1}}
            return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"

        one = rig(script, vary=vary)
        said = one.chat([SYSTEM, USER], tools=TOOLS).json["choices"][0]["message"]
        (call,) = said["tool_calls"]
        assert call["function"]["name"] in {tool["function"]["name"] for tool in TOOLS}
        assert json.loads(call["function"]["arguments"]) == {"file_path": "a", "n": 1}
        answer = {"role": "tool", "tool_call_id": call["id"], "content": "ok"}
        one.chat([SYSTEM, USER, said, answer], tools=TOOLS)
        assert len(one.session.segments()) == 1
        assert not one.session.counts
        assert one.session.calls[0].turn.calls[0].name == call["function"]["name"]
        assert one.format.tokenizer.decode([id for id, *_ in one.sampled()]).startswith("<tool_call>")
        prompt = one.policy.calls[0].text
        assert "Fix `bash`." in prompt
        seen.add(tuple(function["name"] for function in names))
        for function in names:
            required = function["parameters"]["required"]
            assert required == [next(iter(function["parameters"]["properties"]))]
    assert len(seen) >= 6
    assert ("bash", "read_file", "edit", "Glob") not in seen


def test_without_it_the_model_sees_what_the_harness_says(rig):
    one = rig(["ok"])
    one.chat([SYSTEM, USER], tools=TOOLS)
    assert [f["name"] for f in shown_tools(one.policy.calls[0].text)] == ["bash", "read_file", "edit", "Glob"]
    assert SYSTEM["content"] in one.policy.calls[0].text


def test_names_in_the_system_prompt_follow(rig):
    one = rig(["ok"], vary=3)
    one.chat([SYSTEM, USER], tools=TOOLS)
    prompt = one.policy.calls[0].text
    system = prompt.split("<|im_end|>")[0]
    assert not re.search(r"\bread_file\b", system)
    assert "`bash`" not in system
    assert "Edit with bash; be glob." in system  # words of a sentence stay


def test_a_call_by_the_harness_own_name_is_not_taken(rig):
    """The model was not shown ``read_file``: the harness must answer that there is no such tool, and the ids stay."""
    one = rig(
        lambda call: (
            "ok" if call.turn else '<tool_call>\n{"name": "read_file", "arguments": {"file_path": "a"}}\n</tool_call>'
        ),
        vary=0,
    )
    said = one.chat([USER], tools=TOOLS).json["choices"][0]["message"]
    (call,) = said["tool_calls"]
    assert call["function"]["name"] == f"{HIDDEN}read_file"
    one.chat([USER, said, {"role": "tool", "tool_call_id": call["id"], "content": "no such tool"}], tools=TOOLS)
    assert len(one.session.segments()) == 1
    assert not one.session.counts


def test_side_calls_and_new_tools_keep_the_names(rig):
    one = rig(lambda call: f"reply number {call.turn} of the model", vary=5)
    said = one.chat([SYSTEM, USER], tools=TOOLS[:2]).json["choices"][0]["message"]
    one.chat([SYSTEM, USER, said, USER])
    one.chat([SYSTEM, USER, said, USER], tools=TOOLS)
    assert one.session.counts == {"aside": 1, "tools_changed": 1}
    few, all_ = (shown_tools(one.policy.calls[i].text) for i in (0, 2))
    assert {f["name"] for f in few} < {f["name"] for f in all_}


WORDS = st.sampled_from(
    ["bash", "shell", "Bash", "run", "read_file", "readFile", "terminal", "a b", "1", "grep", "find", "noSuchBash"]
)
NAMES = st.lists(WORDS | st.text(max_size=4), max_size=12)


@settings(deadline=None, max_examples=300)
@given(seed=st.integers(0, 99), known=NAMES, more=NAMES)
def test_names_are_one_to_one_both_ways(seed, known, more):
    names = Names(str(seed), "_".join)
    names.learn(known)
    names.learn(more)
    for name in [*known, *more, *(HIDDEN + name for name in known), HIDDEN + HIDDEN + "bash", "bash", "other"]:
        assert names.show(names.back(name)) == name
    for name in [*known, *more]:
        assert names.back(names.show(name)) == name
    assert len({names.show(name) for name in {*known, *more}}) == len({*known, *more})


def test_schemas_that_are_odd(rig):
    odd = {"type": "function", "function": {"name": "x_y", "parameters": {"properties": [], "required": "no"}}}
    one = rig(["ok"], vary=1)
    assert one.chat([USER], tools=[odd]).status == 200

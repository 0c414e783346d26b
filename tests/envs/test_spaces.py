"""Text and tool-call spaces: what they contain, what they draw, and how Gymnasium batches them."""

import json
import math
import os
import pickle
import subprocess
import sys
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Dict
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from forkgym.envs.schema import check_schema, problem, sample
from forkgym.envs.spaces import ToolCalls, UnicodeText
from forkgym.envs.tools.registry import build
from forkgym.errors import ConfigError

ALL_TOOLS = ["bash", "view", "edit", "submit"]


@pytest.mark.parametrize(
    "text", ["", "a b\n", "tab\there", "naïve ❌", "\x1b[31m", "\0", "👩‍👩‍👧", "x" * 200_000, "\r\n", "\U0010ffff"]
)
def test_text_contains_every_valid_string(text):
    assert UnicodeText(200_000).contains(text)


@pytest.mark.parametrize("value", ["\ud800", "ok\udfff", b"bytes", None, 3, ["a"]])
def test_text_refuses_what_utf8_cannot_carry(value):
    assert not UnicodeText(100).contains(value)


def test_text_length_is_a_bound():
    assert UnicodeText(3).contains("abc")
    assert not UnicodeText(3).contains("abcd")
    assert UnicodeText(0).contains("")
    with pytest.raises(ConfigError):
        UnicodeText(-1)


def test_equality_repr_and_pickle():
    assert UnicodeText(3) == UnicodeText(3) != UnicodeText(4)
    assert repr(UnicodeText(3)) == "UnicodeText(3)"
    calls = ToolCalls(build(ALL_TOOLS))
    assert calls == ToolCalls(build(ALL_TOOLS)) != ToolCalls(build(["bash"]))
    assert repr(calls) == "ToolCalls(bash, view, edit, submit)"
    assert pickle.loads(pickle.dumps(calls)) == calls == deepcopy(calls)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("ls", "got str"),
        ({"tool": "bash"}, "exactly the keys"),
        ({"tool": "bash", "arguments": {}, "more": 1}, "exactly the keys"),
        ({"tool": "bsh", "arguments": {}}, "did you mean 'bash'"),
        ({"tool": None, "arguments": {}}, "unknown tool None"),
        ({"tool": ["bash"], "arguments": {}}, "unknown tool"),
        ({"tool": "bash", "arguments": None}, "must be an object, got null"),
        ({"tool": "bash", "arguments": {}}, "misses the argument 'command'"),
        ({"tool": "bash", "arguments": {"command": 3}}, "bash.command must be a string, got a number"),
        ({"tool": "bash", "arguments": {"command": "ls", "timeout": "60"}}, "must be a number, got a string"),
        ({"tool": "bash", "arguments": {"command": "ls", "timeout": None}}, "must be a number, got null"),
        ({"tool": "bash", "arguments": {"command": "ls", "timeout": True}}, "must be a number, got a boolean"),
        ({"tool": "bash", "arguments": {"command": "ls", "timeout": math.nan}}, "must be a number, got nan"),
        ({"tool": "bash", "arguments": {"command": "ls", "timeout": math.inf}}, "must be a number, got inf"),
        ({"tool": "bash", "arguments": {"command": "ls", "x": 1}}, "unknown argument 'x'"),
        ({"tool": "bash", "arguments": {"command": "\udc80"}}, "lone surrogate"),
        ({"tool": "view", "arguments": {"path": ""}}, "1 to inf characters"),
        ({"tool": "view", "arguments": {"path": "a", "first": 0}}, "at least 1"),
        ({"tool": "view", "arguments": {"path": "a", "first": 1.0}}, "must be an integer"),
        ({"tool": "edit", "arguments": {"command": "delete", "path": "a"}}, "must be one of 'create'"),
        ({"tool": "submit", "arguments": {"now": True}}, "known: none"),
    ],
)
def test_a_wrong_call_is_outside_and_says_why(action, words):
    space = ToolCalls(build(ALL_TOOLS))
    assert not space.contains(action)
    assert words in space.problem(action)


@pytest.mark.parametrize("timeout", [-1, 0, 1e12, 0.5, 60])
def test_any_finite_timeout_is_a_valid_call(timeout):
    assert ToolCalls(build(["bash"])).contains({"tool": "bash", "arguments": {"command": "", "timeout": timeout}})


def test_samples_are_valid_reach_every_tool_and_survive_json():
    space = ToolCalls(build(ALL_TOOLS), seed=3)
    calls = [space.sample() for _ in range(200)]
    assert all(space.contains(call) for call in calls)
    assert {call["tool"] for call in calls} == set(ALL_TOOLS)
    assert space.from_jsonable(json.loads(json.dumps(space.to_jsonable(calls)))) == calls


def test_samples_do_not_depend_on_the_hash_seed():
    code = (
        "import json; from forkgym.envs.spaces import ToolCalls, UnicodeText;"
        "from forkgym.envs.tools.registry import build;"
        "s = ToolCalls(build(['bash', 'view', 'edit', 'submit']), seed=7); t = UnicodeText(50, seed=7);"
        "print(json.dumps([[s.sample(), t.sample()] for _ in range(5)]))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_masks_are_refused():
    space: Any = UnicodeText(3)
    with pytest.raises(ConfigError):
        space.sample(mask=np.ones(3))


def test_gymnasium_batches_both_spaces():
    single = Dict({"text": UnicodeText(10)})
    batched = batch_space(single, 2)
    items = [{"text": "a"}, {"text": "ü\n"}]
    joined = concatenate(single, items, create_empty_array(single, 2))
    assert joined == {"text": ("a", "ü\n")}
    assert batched.contains(joined)
    assert list(iterate(batched, joined)) == items
    calls = batch_space(ToolCalls(build(ALL_TOOLS), seed=1), 3)
    drawn = calls.sample()
    assert len(drawn) == 3
    assert calls.contains(drawn)
    assert list(iterate(calls, drawn)) == list(drawn)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "a+"},
        {"type": ["string", "null"]},
        {"type": "object", "properties": {"a": {"type": "date"}}},
        {"type": "object", "properties": {}, "required": ["a"]},
        {"type": "object", "additionalProperties": True},
        {"oneOf": []},
    ],
)
def test_a_schema_that_would_be_half_honoured_is_refused(schema):
    with pytest.raises(ConfigError):
        check_schema(schema, "tool")


def test_schema_of_nested_values():
    schema = {
        "type": "object",
        "properties": {
            "points": {
                "type": "array",
                "items": {"type": "number", "minimum": 0, "maximum": 1},
                "minItems": 1,
                "maxItems": 2,
            },
            "on": {"type": "boolean"},
            "count": {"type": "integer", "minimum": -3, "maximum": -3},
            "name": {"type": "string", "minLength": 2, "maxLength": 2},
        },
        "required": ["points"],
    }
    check_schema(schema, "t")
    assert problem(schema, {"points": [0, 1.0]}, "t") is None
    assert problem(schema, {"points": [0, 2]}, "t") == "t.points[1] must be at most 1, got 2"
    assert problem(schema, {"points": []}, "t") == "t.points must have 1 to 2 items, got 0"
    rng = np.random.default_rng(0)
    drawn = [sample(schema, rng) for _ in range(50)]
    assert all(problem(schema, value, "t") is None for value in drawn)
    assert {len(value) for value in drawn} == {1, 2, 3, 4}


def test_tools_must_be_known_and_single():
    with pytest.raises(ConfigError, match="did you mean 'view'"):
        build(["veiw"])
    with pytest.raises(ConfigError, match="named twice: bash"):
        build(["bash", "bash"])
    with pytest.raises(ConfigError):
        ToolCalls([])

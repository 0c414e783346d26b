"""The agent with tool calls, in real sandboxes, with scripted turns."""

from __future__ import annotations

import json
import re

import pytest

from forkgym.agents.base import SamplingParams
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.loops.tools import ToolsAgent
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.agents.registry import make_agent
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.errors import ConfigError

CHAT = ChatML(ByteTokenizer())
HERMES = [
    {"name": "view", "arguments": {"path": "clamp.py", "first": 5, "last": 5}},
    {"name": "edit", "arguments": {"command": "undo"}},
    {
        "name": "edit",
        "arguments": {
            "command": "str_replace",
            "path": "clamp.py",
            "old_str": "        return x\n",
            "new_str": "        return high\n",
        },
    },
    {"name": "submit", "arguments": {}},
]


def hermes(call):
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


def xml(call):
    arguments = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in call["arguments"].items())
    return f"<function={call['name']}>\n{arguments}</function>"


@pytest.mark.parametrize(("actions", "write"), [("native", hermes), ("xml", xml)])
def test_a_task_is_solved_by_tool_calls(make_env, actions, write):
    agent = make_agent({"name": "tools", "actions": actions}, format=CHAT)
    policy = ScriptedPolicy([write(call) for call in HERMES])
    episode = agent.run(
        make_env(),
        policy,
        task="test/clamp",
        seed=1,
        sampling=SamplingParams(max_tokens=2000),
        episode="e",
        group="g",
    )
    assert (episode.status, episode.reward, episode.harness) == ("finished", 1.0, "tools")
    assert [step.action["tool"] for step in episode.steps] == ["view", "edit", "edit", "submit"]
    assert episode.steps[0].observation == "     5\t        return x"
    assert "misses the argument 'path'" in episode.steps[1].observation
    text = CHAT.tokenizer.decode(episode.segments[0].ids)
    assert "<|im_start|>user\n<tool_response>\n     5\t        return x\n</tool_response><|im_end|>" in text


def test_the_system_message_defines_the_tools_of_the_environment(make_env):
    env = make_env(tools=["bash", "submit"])
    policy = ScriptedPolicy([hermes(HERMES[-1])])
    agent = ToolsAgent(CHAT, system="Work.")
    sampling = SamplingParams(max_tokens=500)
    episode = agent.run(env, policy, task="test/clamp", seed=1, sampling=sampling, episode="e", group="g")
    assert episode.prompt[0] == {"role": "system", "content": "Work."}
    system = CHAT.tokenizer.decode(episode.segments[0].ids).split("<|im_end|>")[0]
    assert system.startswith("<|im_start|>system\nWork.\n\n# Tools\n")
    (tools,) = re.findall(r"<tools>\n(.*)\n</tools>", system, re.DOTALL)
    defined = [json.loads(line) for line in tools.split("\n")]
    assert [tool["function"]["name"] for tool in defined] == ["bash", "submit"]
    assert defined[0]["type"] == "function"
    assert defined[0]["function"]["parameters"]["required"] == ["command"]


def test_a_format_without_tool_calls_is_refused():
    with pytest.raises(ConfigError, match="bash"):
        ToolsAgent(CHAT, actions="bash")


LOOK, FIX, UNDO, DONE = (hermes(call) for call in (HERMES[0], HERMES[2], HERMES[1], HERMES[3]))


def play(env, *turns, max_tokens=3000):
    policy = ScriptedPolicy(turns)
    sampling = SamplingParams(max_tokens=max_tokens)
    agent = ToolsAgent(CHAT)
    episode = agent.run(env, policy, task="test/clamp", seed=1, sampling=sampling, episode="e", group="g")
    return episode, policy


def test_the_calls_of_one_turn_are_run_in_their_order_and_answered_one_by_one(make_env):
    env = make_env()
    episode, policy = play(env, f"I look and fix.\n{LOOK}\n{FIX}\n{LOOK}", DONE)
    assert (episode.status, episode.reward) == ("finished", 1.0)
    assert [(step.turn, step.action["tool"]) for step in episode.steps] == [
        (0, "view"),
        (0, "edit"),
        (0, "view"),
        (1, "submit"),
    ]
    assert [step.text[:6] for step in episode.steps] == ["I look", "", "", "<tool_"]  # told once
    before, _, after = (step.observation for step in episode.steps[:3])
    assert ("return x" in before, "return high" in after) == (True, True)
    assert len(policy.calls) == 2
    answers = policy.calls[1].text.rpartition("<|im_start|>user")[2]
    assert answers.index(before) < answers.index(after)
    assert answers.count("<tool_response>") == 3
    assert env.usage()["turns"] == 4  # each call costs a turn of the environment
    assert len(episode.segments) == 1


def test_nothing_is_run_after_the_call_that_ends_the_episode(make_env):
    episode, _ = play(make_env(), f"{FIX}\n{DONE}\n{LOOK}")
    assert [step.action["tool"] for step in episode.steps] == ["edit", "submit"]
    assert (episode.status, episode.reward) == ("finished", 1.0)
    episode, _ = play(make_env(max_turns=2), f"{LOOK}\n{LOOK}\n{FIX}\n{LOOK}")
    assert (episode.status, episode.reason, len(episode.steps)) == ("truncated", "turns", 2)
    assert episode.reward == 0.0


def test_a_broken_call_is_a_step_of_its_own_that_says_so(make_env):
    cut = '<tool_call>\n{"name": "edit", "argu'
    episode, policy = play(make_env(), f"{LOOK}\n{cut}", "I am done.", DONE)
    assert [set(step.action) for step in episode.steps] == [
        {"tool", "arguments"},
        {"malformed"},
        {"malformed"},
        {"tool", "arguments"},
    ]
    assert "is not JSON" in episode.steps[1].observation
    assert "call at least one of: bash, view, edit, submit" in episode.steps[2].observation
    # Answers of tools come as such, complaints as the user's.
    assert "</tool_response><|im_end|>\n<|im_start|>user\nA tool call is not JSON" in policy.calls[1].text
    assert [step.turn for step in episode.steps] == [0, 0, 1, 2]


def test_a_call_cut_off_by_the_token_limit_is_not_run(make_env):
    room = len(FIX) - 20
    env = make_env(max_turns=2)
    episode, _ = play(env, FIX, FIX, max_tokens=room)
    assert all("malformed" in step.action for step in episode.steps)
    assert env.box.read_file("/work/clamp.py").endswith(b"return x\n    return x\n")

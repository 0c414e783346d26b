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

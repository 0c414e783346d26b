"""Prompts as files: packaged or anywhere, with variables of the task, and never anything of its solution."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forkgym.agents.base import SamplingParams
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.loops.bash import BashAgent
from forkgym.agents.loops.prompts import Prompt, load_prompt
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.agents.registry import make_agent
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.errors import ConfigError

CHAT = ChatML(ByteTokenizer())
SUBMIT = {"bash": "```bash\nsubmit\n```", "tools": '<tool_call>{"name": "submit"}</tool_call>'}


def prompt_of(env: Any, options: dict[str, Any]) -> list[Any]:
    agent = make_agent(options, format=CHAT)
    policy = ScriptedPolicy([SUBMIT[options["name"]]])
    params = SamplingParams(max_tokens=500)
    episode = agent.run(env, policy, task="test/clamp", seed=1, sampling=params, episode="e", group="g")
    assert episode.status == "finished"
    assert CHAT.tokenizer.decode(policy.calls[0].ids).startswith(f"<|im_start|>system\n{episode.prompt[0]['content']}")
    return episode.prompt


def test_variables_of_the_task_are_filled_in(make_env: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "system: $family in ${workdir}, id $task, for $$5, with $tools\n"
        "task: |-\n  Please:\n  $instruction\n"
        "examples:\n- {role: user, content: $instruction}\n- {role: assistant, content: 'no $x here'}\n"
    )
    prompt = prompt_of(make_env(), {"name": "bash", "prompt": str(path)})
    assert prompt == [
        {"role": "system", "content": "swe in /work, id test/clamp, for $5, with bash, view, edit, submit"},
        {"role": "user", "content": "$instruction"},
        {"role": "assistant", "content": "no $x here"},
        {"role": "user", "content": "Please:\nclamp(15, 0, 10) returns 15; it should return 10. Fix clamp.py."},
    ]


@pytest.mark.parametrize(("name", "prompt"), [("bash", "careful-bash"), ("tools", "careful-tools")])
def test_packaged_prompts(make_env: Any, name: str, prompt: str) -> None:
    messages = prompt_of(make_env(), {"name": name, "prompt": prompt})
    assert "/work" in messages[0]["content"]
    assert not any("$" in message["content"] for message in messages)


def test_a_dollar_sign_in_a_system_message_given_as_it_is_stays(make_env: Any) -> None:
    prompt = prompt_of(make_env(), {"name": "bash", "system": "It costs $5, $task."})
    assert prompt[0]["content"] == "It costs $5, $task."


def test_only_these_variables_are_known() -> None:
    with pytest.raises(ConfigError, match=r"system: unknown variable 'oracle'"):
        Prompt(system="$oracle")
    with pytest.raises(ConfigError, match=r"unknown variable 'summary'"):
        Prompt(task="$summary")
    Prompt(resume="$summary $observation $task")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "not a mapping"),
        ("sistem: x", "did you mean 'system'"),
        ("system: 3", "system must be a text, not 3"),
        ("task: null", "task must be a text"),
        ("task: 100 $", "written"),
        ("examples: x", "list of messages"),
        ("examples: [x]", "list of messages"),
        ("a: [", "can't be read"),
        ("task: $isntruction", "did you mean 'instruction'"),
    ],
)
def test_a_wrong_file_is_refused_and_says_where(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_prompt(str(path))
    assert "wrong.yaml" in str(caught.value)


def test_names_and_contradictions_are_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'careful-bash'"):
        BashAgent(CHAT, prompt="careful-bahs")
    with pytest.raises(ConfigError, match="leave system and examples out"):
        BashAgent(CHAT, prompt="careful-bash", system="Work.")

"""H01: every observation ever returned lies in its space; every action gets an answer."""

import warnings
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env

from forkgym.envs.formats import TextActions

TEXTS = ["", "a b\n", "tab\there", "naïve ❌", "\x1b[31m", "x" * 200_000]


@pytest.fixture(scope="module")
def env():
    with gym.make("forkgym/SWE-v0", tasks="swe/tiny/*", max_turns=1000) as env:
        env.reset(seed=1)
        yield env


def test_the_space_holds_what_commands_print(env):
    for text in TEXTS:
        arguments = {"command": "create", "path": "/tmp/out", "file_text": text}
        env.step({"tool": "edit", "arguments": arguments})
        observation, *_ = env.step({"tool": "bash", "arguments": {"command": "cat /tmp/out"}})
        assert env.observation_space.contains(observation)
        assert observation["text"] == (text or "[no output]") or len(observation["text"]) == 8000
    for text in TEXTS[:-1]:
        assert env.observation_space.contains({"text": text})


def test_any_action_text_is_answered(env):
    texts: Any = TextActions(env)
    for text in [*TEXTS, "\ud800", "x" * (1 << 21), None, 3, "```bash\n" + "x" * 200_000 + "\n```"]:
        observation, reward, terminated, truncated, info = texts.step(text)
        assert env.observation_space.contains(observation)
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert "failure" not in info


def test_check_env_has_nothing_to_warn_about():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with gym.make("forkgym/SWE-v0", tasks="swe/tiny/*") as env:
            check_env(env.unwrapped)

"""C13: a timeout of -1 and a flood of output cost neither time without end nor memory."""

import math
import resource

import pytest

from forkgym.envs.core import CodingEnv
from forkgym.envs.tools.bash import Bash


@pytest.fixture(scope="module")
def env():
    with CodingEnv("swe/tiny/*", tools=[Bash(default=0.9, ceiling=1.0)], max_turns=100) as env:
        env.reset(seed=1)
        yield env


@pytest.mark.parametrize("timeout", [-1, 0, 1e12])
def test_the_ceiling_holds_and_output_is_bounded(env, timeout):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    observation, *_ = env.step({"tool": "bash", "arguments": {"command": "yes", "timeout": timeout}})
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert "[timed out after 1 s and was killed]" in observation["text"]
    assert observation["text"].startswith("y\ny\n")
    assert len(observation["text"]) <= 8000
    assert grown < 100 * 1024  # KiB
    left = env.box.exec("cat /proc/[0-9]*/comm").stdout.decode().split()
    assert "yes" not in left


@pytest.mark.parametrize("timeout", ["60", None, math.nan, math.inf, True, [1]])
def test_what_is_no_number_is_a_format_error(env, timeout):
    observation, *_, info = env.step({"tool": "bash", "arguments": {"command": "echo ran", "timeout": timeout}})
    assert "bash.timeout must be a number" in observation["text"]
    assert info["tool_error"] is True

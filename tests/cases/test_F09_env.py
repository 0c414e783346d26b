"""F09: what breaks around an episode has a reason of its own and no reward."""

import pytest

from forkgym.envs.core import CodingEnv
from forkgym.tasks import load

SUBMIT = {"tool": "submit", "arguments": {}}


def test_a_dead_sandbox_is_not_a_zero():
    with CodingEnv("swe/tiny/*") as env:
        env.reset(seed=1)
        env.box.close()
        info = env.step(SUBMIT)[4]
        assert (info["failure"]["kind"], info["reward"]) == ("sandbox", None)


@pytest.mark.parametrize("grader", [lambda verdict: [][0], lambda verdict: float("nan"), lambda verdict: None])
def test_a_broken_grader_is_not_a_zero(grader):
    with CodingEnv("swe/tiny/*", reward=grader) as env:
        env.reset(seed=1)
        info = env.step(SUBMIT)[4]
        assert (info["failure"]["kind"], info["reward"]) == ("grader", None)


def test_an_honest_miss_is_a_zero():
    task = load("swe/tiny/*")[0]
    with CodingEnv(task) as env:
        env.reset(seed=1)
        _, reward, terminated, _, info = env.step(SUBMIT)
        assert (reward, terminated, info["reward"], "failure" in info) == (0.0, True, 0.0, False)


def test_a_pipeline_that_fails_is_data():
    with CodingEnv("swe/tiny/*") as env:
        env.reset(seed=1)
        command = "set -o pipefail; false | tee /tmp/log"
        observation, *_, info = env.step({"tool": "bash", "arguments": {"command": command}})
        assert observation["text"] == "[exit code 1]"
        assert "failure" not in info

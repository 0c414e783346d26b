"""H06: a grader that raises does not escape ``step``; a reset whose first two sandboxes fail still works."""

from typing import Any

import pytest

from forkgym.envs.core import CodingEnv
from forkgym.envs.errors import ResetError, is_permanent
from forkgym.sandboxes import backend
from forkgym.sandboxes.errors import ImageError, SandboxError
from forkgym.tasks import load

SUBMIT = {"tool": "submit", "arguments": {}}


class Flaky:
    """A backend whose first ``failures`` sandboxes cannot be created."""

    def __init__(self, failures, error: type[SandboxError] = SandboxError):
        self.error = error
        self.inner = backend("local")
        self.name = self.inner.name
        self.failures = failures
        self.boxes = []

    def create(self, spec, snapshot=None):
        if self.failures > 0:
            self.failures -= 1
            raise self.error("no luck")
        self.boxes.append(self.inner.create(spec, snapshot))
        return self.boxes[-1]

    def __getattr__(self, name):
        return getattr(self.inner, name)


@pytest.fixture
def task():
    return load("swe/tiny/*")[0]


def test_a_reward_that_raises_is_a_typed_failure(task):
    with CodingEnv(task, reward=lambda verdict: [][0]) as env:
        env.reset(seed=1)
        observation, reward, terminated, truncated, info = env.step(SUBMIT)
        assert (reward, terminated, truncated) == (0.0, False, True)
        assert info["failure"] == {"kind": "grader", "reason": "IndexError: list index out of range"}
        assert info["reward"] is None
        assert env.observation_space.contains(observation)


@pytest.mark.parametrize("failures", [1, 2])
def test_reset_is_tried_again_with_a_fresh_sandbox(task, failures):
    backend: Any = Flaky(failures)
    with CodingEnv(task, sandbox=backend) as env:
        assert env.reset(seed=1)[0]["text"] == task.instruction
        assert env.step(SUBMIT)[2] is True
    assert not any(box.alive for box in backend.boxes)


def test_three_failures_are_a_typed_error_and_nothing_leaks(task):
    backend: Any = Flaky(3)
    with CodingEnv(task, sandbox=backend) as env:
        with pytest.raises(ResetError, match=r"no sandbox got ready in 3 tries: .*no luck"):
            env.reset(seed=1)
        assert env.outcome is None
        env.reset(seed=1)
        assert env.step(SUBMIT)[2] is True
    assert not any(box.alive for box in backend.boxes)


def test_an_image_that_is_not_there_is_not_tried_again(task):
    backend: Any = Flaky(3, ImageError)
    with CodingEnv(task, sandbox=backend) as env:
        with pytest.raises(ResetError, match=r"no sandbox got ready in 1 try: ImageError: no luck") as caught:
            env.reset(seed=1)
        assert is_permanent(caught.value)
        assert backend.failures == 2

"""``Kernel-v0``: measure, edit, submit; rewards by name; what is hidden stays so."""

from __future__ import annotations

import math

import gymnasium as gym
import pytest

from forkgym import tasks
from forkgym.envs import kernels
from forkgym.envs.base import Evidence
from forkgym.envs.conformance import check
from forkgym.envs.errors import EnvError
from forkgym.tasks.base import Submission, Verdict


def call(tool: str, **arguments: object) -> dict[str, object]:
    return {"tool": tool, "arguments": arguments}


def test_an_episode_from_baseline_to_expert() -> None:
    task = tasks.load("kernel/matmul")[0]
    expert = (task.oracle["kern.c"] or b"").decode()
    env = gym.make("forkgym/Kernel-v0", tasks=task)
    env.reset(seed=0)
    slow, *_ = env.step(call("measure"))
    assert "Right on the public shapes." in slow["text"]
    env.step(call("bash", command=f"cat > kern.c <<'END'\n{expert}\nEND"))
    fast, *_ = env.step(call("measure"))
    assert "Right on the public shapes." in fast["text"]
    found, *_ = env.step(call("bash", command="ls -R / 2>/dev/null | grep -c -e expert -e solution -e baseline; ls"))
    assert found["text"].split()[-1] == "kern.c"
    _, reward, terminated, truncated, info = env.step(call("submit"))
    assert (terminated, truncated) == (True, False), info
    assert reward == pytest.approx(1.0, abs=0.1)
    env.close()


@pytest.mark.parametrize(
    ("text", "says"),
    [("int kern(", "It does not build"), ('void kern(void) { for (;;) __asm__(""); }', "a call took longer")],
)
def test_measure_says_what_is_wrong(text: str, says: str) -> None:
    env = gym.make("forkgym/Kernel-v0", tasks="kernel/matmul")
    env.reset(seed=0)
    env.step(call("bash", command=f"echo '{text}' > kern.c"))
    seen, *_ = env.step(call("measure"))
    assert says in seen["text"]
    env.step(call("bash", command="rm kern.c"))
    seen, *_ = env.step(call("measure"))
    assert "no file kern.c" in seen["text"]
    _, reward, terminated, *_ = env.step(call("submit"))
    assert (reward, terminated) == (-0.2, True)
    env.close()


def test_conformance() -> None:
    check("forkgym/Kernel-v0", tasks="kernel/sum-squares")


def evidence(parts: dict[str, float], hacks: tuple[str, ...] = ()) -> Evidence:
    task = tasks.load("kernel/matmul")[0]
    return Evidence(Verdict(0.0, False, "unresolved", parts, (), hacks), task, Submission({}))


RIGHT = {"compiled": 1.0, "ran": 1.0, "correct": 1.0, "share_right": 1.0}
FOUR = {**RIGHT, "speedup": 4.2, "ci_low": 4.0, "ci_high": 4.4, "expert_speedup": 16.0, "expert_ratio": 4.2 / 16}


@pytest.mark.parametrize(
    ("name", "four", "wrong", "broken"),
    [
        ("kernel", 0.65, 0.0, -0.2),  # 0.3 + 0.7 * log 4 / log 16
        ("correct", 1.0, 0.0, 0.0),
        ("fast_1", 1.0, 0.0, 0.0),
        ("fast_2", 1.0, 0.0, 0.0),
        ("kevin", 4.5, 0.0, 0.0),
        ("kernelgym", 2.0, 0.0, 0.0),
        ("gso_opt95", 0.0, 0.0, 0.0),
        ("min_gain", 0.75, 0.0, 0.0),
        ("staged", 0.75, 0.345, 0.1),
    ],
)
def test_rewards(name: str, four: float, wrong: float, broken: float) -> None:
    reward = getattr(kernels, name)
    assert reward(evidence(FOUR)) == pytest.approx(four)
    assert reward(evidence({**RIGHT, "correct": 0.0, "share_right": 0.5})) == pytest.approx(wrong)
    assert reward(evidence({"compiled": 1.0, "ran": 0.0, "correct": 0.0, "share_right": 0.0})) == pytest.approx(broken)
    assert reward(evidence(FOUR, ("stale_output: x",))) == 0.0


def test_a_verdict_that_says_nothing_of_kernels_fails_the_episode_instead_of_scoring_it() -> None:
    for name in ("kernel", "correct", "fast_1", "kevin", "kernelgym", "gso_opt95", "min_gain", "staged"):
        with pytest.raises(EnvError, match="they are for tasks of the family kernel"):
            getattr(kernels, name)(evidence({"tests": 1.0}))
    for name in ("kernel", "fast_1", "kevin", "kernelgym", "gso_opt95", "min_gain", "staged"):
        with pytest.raises(EnvError, match=r"the verdict has no '(speedup|expert_ratio|ci_low)'"):
            getattr(kernels, name)(evidence(RIGHT))


def test_a_kernel_that_may_be_no_faster_earns_what_a_right_one_earns() -> None:
    same = {**FOUR, "speedup": 1.0, "ci_low": 1.01}
    assert kernels.kernel(evidence(same)) == pytest.approx(0.3)
    assert kernels.fast_1(evidence(same)) == 0.0
    assert math.isclose(kernels.staged(evidence(same)), 0.5)

"""F09: each way that infrastructure can fail has its own reason, is counted, and is no reward."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forkgym.agents.base import SamplingParams
from forkgym.agents.collect import Job, collect
from forkgym.agents.errors import FailureBudgetError
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.loops.bash import BashAgent
from forkgym.agents.loops.sampling import turn_seed
from forkgym.agents.policies.scripted import Call, ScriptedPolicy
from forkgym.agents.summary import summarize
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.envs.core import CodingEnv

SUBMIT = "```bash\nsubmit\n```"
FIX = "```bash\nsed -i '/value > high/{n;s/value/high/}' clamp.py\n```"
AGENT = BashAgent(ChatML(ByteTokenizer()))


def jobs(n: int) -> list[Job]:
    return [Job("swe/tiny/clamp/upper-bound", seed=i, group="g", id=f"e{i}") for i in range(n)]


def killing(envs: list[CodingEnv], victims: set[int]) -> Callable[[Call], str]:
    """Solves the task, except that the sandbox of each victim is killed in the first turn (one worker, one env)."""
    seeds = {turn_seed(seed, 0): seed for seed in range(32)}

    def script(call: Call) -> str:
        if call.turn == 0 and seeds[call.params.seed or 0] in victims:
            envs[-1].box.close()
        return FIX if call.turn == 0 else SUBMIT

    return script


def test_group_of_three_and_a_dead_sandbox() -> None:
    envs: list[CodingEnv] = []

    def factory() -> CodingEnv:
        envs.append(CodingEnv("swe/tiny/clamp/*"))
        return envs[-1]

    run = collect(
        jobs(4), factory, AGENT, ScriptedPolicy(killing(envs, {3})), sampling=SamplingParams(), concurrency=1, retries=0
    )
    assert [e.reward for e in run.episodes] == [1.0, 1.0, 1.0, None]
    summary = summarize(run.episodes)
    assert summary.reason == {"finished(submitted)": 3, "failed(sandbox)": 1}
    assert summary.reward == 1.0
    assert summary.failed_share == 0.25


def test_mostly_dead_sandboxes_stop_the_run() -> None:
    envs: list[CodingEnv] = []

    def factory() -> CodingEnv:
        envs.append(CodingEnv("swe/tiny/clamp/*"))
        return envs[-1]

    with pytest.raises(FailureBudgetError, match=r"8 of 8 episodes failed, more than 50%: sandbox 8"):
        collect(
            jobs(20),
            factory,
            AGENT,
            ScriptedPolicy(killing(envs, set(range(20)))),
            sampling=SamplingParams(),
            concurrency=1,
            retries=0,
        )


def test_failing_pipeline_of_the_agent_is_not_infrastructure() -> None:
    run = collect(
        jobs(1),
        lambda: CodingEnv("swe/tiny/clamp/*"),
        AGENT,
        ScriptedPolicy(["```bash\nfalse | tee log; exit 7\n```", SUBMIT]),
        sampling=SamplingParams(),
    )
    assert (run.episodes[0].status, run.episodes[0].reward) == ("finished", 0.0)

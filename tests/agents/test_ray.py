"""The same runs on Ray: a small local cluster, real worker processes, real sandboxes."""

from __future__ import annotations

import functools
import importlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from forkgym.agents.base import Episode, SamplingParams
from forkgym.agents.collect import Job, collect, enough
from forkgym.agents.errors import ContextLengthError, PolicyError
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.loops.bash import BashAgent
from forkgym.agents.loops.oracle import OracleAgent
from forkgym.agents.loops.sampling import turn_seed
from forkgym.agents.policies.scripted import Call, ScriptedPolicy
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.envs.core import CodingEnv
from forkgym.errors import ConfigError
from forkgym.sandboxes import backend, state
from forkgym.sandboxes.state import Owner

ray: Any = pytest.importorskip("ray", reason="Ray is not installed: pip install 'forkgym[ray]'")
RayWorkers: Any = importlib.import_module("forkgym.agents.ray_workers").RayWorkers

TASKS = "swe/tiny/clamp/*"
TASK = "swe/tiny/clamp/upper-bound"
SAMPLING = SamplingParams(max_tokens=300)
LOOK = "```bash\ncat clamp.py\n```"
SLEEP = "```bash\nsleep 120\n```"
SUBMIT = "```bash\nsubmit\n```"


def agent() -> BashAgent:
    return BashAgent(ChatML(ByteTokenizer()))


def jobs(n: int, size: int = 4) -> list[Job]:
    return [Job(TASK, seed=i, group=f"g{i // size}", id=f"e{i}") for i in range(n)]


def seed_of(call: Call) -> int:
    return next(n for n in range(64) for turn in range(4) if turn_seed(n, turn) == call.params.seed)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One Ray for this file. Its worker processes cannot import a test, so functions of this file travel by value."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with tempfile.TemporaryDirectory(prefix="forkgym-ray-", ignore_cleanup_errors=True) as folder:
        quiet = {"include_dashboard": False, "log_to_driver": False, "configure_logging": False}
        ray.init(num_cpus=2, _temp_dir=folder, **quiet)
        yield
        ray.shutdown()
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def make_env() -> CodingEnv:
    return CodingEnv(TASKS)


def left_behind() -> list[str]:
    """Sandboxes and snapshots of this test session, but for those of this process."""
    mine = [snapshot.id for snapshot in backend("local").snapshots() if Owner.current().tag() in snapshot.label]
    found = [path.stem for kind in ("boxes", "snapshots") for path in (state.state_dir() / kind).glob("*")]
    return sorted(set(found) - set(mine))


class Fatal(BashAgent):
    """Kills its own process in the middle of each first attempt at an odd seed."""

    def run(self, env: CodingEnv, policy: Any, **job: Any) -> Episode:
        if ".retry" not in job["episode"] and job["seed"] % 2 == 1:
            env.reset(seed=job["seed"], options={"task": job["task"]})
            assert env.box.alive
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(env, policy, **job)


def test_a_run_starts_and_ends_its_own_ray_where_there_is_none() -> None:
    run = collect(jobs(2), make_env, OracleAgent(), None, sampling=SAMPLING, concurrency=2, on="ray")
    assert [e.reward for e in run.episodes] == [1.0, 1.0]
    assert not ray.is_initialized()
    assert left_behind() == []


def test_a_policy_here_is_asked_from_there_and_all_comes_out_as_on_threads(cluster: None) -> None:
    def script(call: Call) -> Any:
        seed = seed_of(call)
        if seed == 4:
            return ContextLengthError("full")
        return SUBMIT if call.turn == 2 else f"```bash\necho {seed}.{call.turn} && pwd\n```"

    policies = ScriptedPolicy(script, version=7), ScriptedPolicy(script, version=7)
    on: Any = ("threads", "ray")
    runs = [
        collect(jobs(6), make_env, agent(), policy, sampling=SAMPLING, concurrency=2, on=where)
        for policy, where in zip(policies, on, strict=True)
    ]
    here, there = runs
    assert [(e.id, e.status, e.reason, e.reward) for e in there.episodes] == [
        (f"e{n}", *(("truncated", "context", 0.0) if n == 4 else ("finished", "submitted", 0.0))) for n in range(6)
    ]
    assert [e.segments for e in there.episodes] == [e.segments for e in here.episodes]
    shown = [[[s.observation for s in e.steps] for e in run.episodes] for run in runs]
    assert shown[0] == shown[1]
    assert sorted(c.ids for c in policies[0].calls) == sorted(c.ids for c in policies[1].calls)
    assert left_behind() == []


def test_a_worker_that_dies_fails_its_episode_and_leaves_nothing(cluster: None) -> None:
    fatal = Fatal(ChatML(ByteTokenizer()), name="fatal")
    run = collect(jobs(4), make_env, fatal, ScriptedPolicy([LOOK, SUBMIT]), sampling=SAMPLING, concurrency=2, on="ray")
    assert [(e.id, e.status, e.harness) for e in run.episodes] == [
        (id, "finished", "fatal") for id in ("e0", "e1.retry1", "e2", "e3.retry1")
    ]
    assert [(e.id, e.status, e.reason, e.reward) for e in run.retried] == [
        ("e1", "failed", "harness", None),
        ("e3", "failed", "harness", None),
    ]
    assert all(e.detail.startswith("HarnessError: the worker died: ") for e in run.retried)
    assert left_behind() == []


def test_failures_of_the_policy_keep_their_kind(cluster: None) -> None:
    script = ScriptedPolicy(lambda call: PolicyError("no memory") if seed_of(call) == 1 else SUBMIT)
    options: Any = {"sampling": SAMPLING, "concurrency": 2, "retries": {"engine": 1}, "max_failed_share": 1.0}
    run = collect(jobs(3), make_env, agent(), script, on="ray", **options)
    assert [(e.id, e.status, e.reason) for e in run.episodes] == [
        ("e0", "finished", "submitted"),
        ("e1.retry1", "failed", "engine"),
        ("e2", "finished", "submitted"),
    ]
    assert run.episodes[1].detail == "PolicyError: no memory"


def test_what_runs_is_cancelled_when_its_group_has_enough(cluster: None) -> None:
    asleep = threading.Event()

    def script(call: Call) -> str:
        if seed_of(call) == 2:
            asleep.set()
            return SLEEP
        if call.turn == 1:
            asleep.wait(60)
        return SUBMIT if call.turn else LOOK

    run = collect(
        jobs(3), make_env, agent(), ScriptedPolicy(script), sampling=SAMPLING, concurrency=3, settle=enough(2), on="ray"
    )
    assert [(e.status, e.reward) for e in run.episodes] == [("finished", 0.0), ("finished", 0.0), ("cancelled", None)]
    assert run.episodes[2].detail.startswith("its group has 2 scored episodes")
    assert sum(run.episodes[2].segments[0].sampled) == len(SLEEP) + 1
    assert left_behind() == []


def test_a_policy_that_hangs_does_not_hold_the_run(cluster: None) -> None:
    cancel, release = threading.Event(), threading.Event()

    def script(call: Call) -> str:
        cancel.set()
        release.wait(60)
        return SUBMIT

    run = collect(
        jobs(1), make_env, agent(), ScriptedPolicy(script), sampling=SAMPLING, cancel=cancel, grace=0.5, on="ray"
    )
    release.set()
    assert (run.stopped, run.episodes[0].status) == ("cancelled", "cancelled")
    assert left_behind() == []


def test_each_worker_can_have_a_policy_of_its_own(cluster: None) -> None:
    def policy() -> Any:
        return ScriptedPolicy(lambda call: SUBMIT if call.turn else f"```bash\n: {os.getpid()}\n```")

    on = functools.partial(RayWorkers, policy_factory=policy)
    run = collect(jobs(4), make_env, agent(), None, sampling=SAMPLING, concurrency=2, on=on)
    processes = {e.steps[0].action["arguments"]["command"] for e in run.episodes}
    assert 1 <= len(processes) <= 2
    assert f": {os.getpid()}" not in processes
    with pytest.raises(ConfigError, match="a policy or a policy_factory, not both"):
        collect(jobs(1), make_env, agent(), policy(), sampling=SAMPLING, on=on)


def test_wrong_input_reaches_the_caller(cluster: None) -> None:
    with pytest.raises(ConfigError, match="swe/tiny/clmp"):
        collect([Job("swe/tiny/clmp", 0, "g", "e")], make_env, OracleAgent(), None, sampling=SAMPLING, on="ray")
    lock: Any = threading.Lock()
    with pytest.raises(ConfigError, match="cannot be sent to the workers of Ray"):
        collect(jobs(1), lambda: lock.acquire() and make_env(), OracleAgent(), None, sampling=SAMPLING, on="ray")
    on = functools.partial(RayWorkers, address="auto")
    with pytest.raises(ConfigError, match="Ray is connected already"):
        collect(jobs(1), make_env, OracleAgent(), None, sampling=SAMPLING, on=on)

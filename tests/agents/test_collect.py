from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from forkgym.agents.base import Episode, SamplingParams
from forkgym.agents.collect import Job, collect
from forkgym.agents.errors import FailureBudgetError, PolicyError
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.loops.bash import BashAgent
from forkgym.agents.loops.sampling import turn_seed
from forkgym.agents.policies.scripted import Call, ScriptedPolicy
from forkgym.agents.records import EpisodeWriter, read_episodes
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.errors import ConfigError
from forkgym.sandboxes.errors import SandboxUnavailableError

AGENT = BashAgent(ChatML(ByteTokenizer()))
SAMPLING = SamplingParams(max_tokens=200)
FIX = "```bash\nsed -i '5s/x/high/' clamp.py\n```"
LOOK = "```bash\ncat clamp.py\n```"
SUBMIT = "```bash\nsubmit\n```"


def jobs(n: int, task: str = "test/clamp") -> list[Job]:
    return [Job(task, seed=i, group=f"g{i // 4}", id=f"e{i}") for i in range(n)]


def by_call_seed(n: int) -> dict[int, int]:
    """The policy sees only the turn's seed; this maps the first turn's seed back to the job's."""
    return {turn_seed(seed, 0): seed for seed in range(n)}


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("forkgym-episode")]


def only(failing: set[int], error: Exception, times: int = 1000) -> Any:
    """A policy that solves the task, except that the first ``times`` calls of the jobs in ``failing`` raise."""
    seeds, left, lock = by_call_seed(64), dict.fromkeys(failing, times), threading.Lock()

    def script(call: Call) -> str | Exception:
        if call.turn > 0:
            return SUBMIT
        seed = seeds[call.params.seed or 0]
        with lock:
            if left.get(seed, 0) > 0:
                left[seed] -= 1
                return error
        return FIX if seed % 2 else LOOK

    return ScriptedPolicy(script)


def test_results_come_in_job_order_and_repeat_exactly(make_env) -> None:
    runs = [collect(jobs(8), make_env, AGENT, only(set(), OSError()), sampling=SAMPLING, concurrency=n) for n in (1, 4)]
    for run in runs:
        assert [e.id for e in run.episodes] == [f"e{i}" for i in range(8)]
        assert [e.reward for e in run.episodes] == [0.0, 1.0] * 4
        assert [e.group for e in run.episodes] == ["g0"] * 4 + ["g1"] * 4
        assert run.retried == []
    assert [e.segments for e in runs[0].episodes] == [e.segments for e in runs[1].episodes]
    assert [[s.observation for s in e.steps] for e in runs[0].episodes] == [
        [s.observation for s in e.steps] for e in runs[1].episodes
    ]


def test_each_worker_reuses_its_environment_and_closes_it(make_env) -> None:
    made: list[Any] = []

    def factory() -> Any:
        made.append(make_env())
        return made[-1]

    collect(jobs(6), factory, AGENT, ScriptedPolicy([FIX, SUBMIT]), sampling=SAMPLING, concurrency=2)
    assert 1 <= len(made) <= 2
    assert all(env.outcome is None for env in made)  # closed


def test_failed_episode_is_retried_under_a_new_id(make_env) -> None:
    seen: list[str] = []
    run = collect(
        jobs(3),
        make_env,
        AGENT,
        only({1}, RuntimeError("hiccup"), times=1),
        sampling=SAMPLING,
        concurrency=1,
        on_episode=lambda e: seen.append(f"{e.id}:{e.status}"),
    )
    assert seen == ["e0:finished", "e1:failed", "e2:finished", "e1.retry1:finished"]
    assert [e.id for e in run.episodes] == ["e0", "e1.retry1", "e2"]
    assert [(e.id, e.reason, e.reward) for e in run.retried] == [("e1", "engine", None)]
    assert run.episodes[1].seed == run.retried[0].seed == 1


def test_out_of_retries_it_stays_failed_and_is_no_zero(make_env) -> None:
    run = collect(jobs(4), make_env, AGENT, only({2}, PolicyError("down")), sampling=SAMPLING, concurrency=2, retries=2)
    assert [(e.id, e.status, e.reward) for e in run.episodes] == [
        ("e0", "finished", 0.0),
        ("e1", "finished", 1.0),
        ("e2.retry2", "failed", None),
        ("e3", "finished", 1.0),
    ]
    assert [e.id for e in run.retried] == ["e2", "e2.retry1"]


def test_too_many_failures_stop_the_run_with_the_reasons(make_env) -> None:
    kept: list[Episode] = []
    with pytest.raises(FailureBudgetError, match=r"of \d+ episodes failed, more than 25%: engine \d+.*no GPU") as stop:
        collect(
            jobs(40),
            make_env,
            AGENT,
            only(set(range(0, 40, 2)), PolicyError("no GPU")),
            sampling=SAMPLING,
            concurrency=2,
            max_failed_share=0.25,
            on_episode=kept.append,
        )
    assert 8 <= len(kept) < 40
    assert "None of them was scored" in str(stop.value)
    assert all(e.reward is None for e in kept if e.status == "failed")


def test_few_jobs_are_checked_at_the_end(make_env) -> None:
    with pytest.raises(FailureBudgetError, match=r"^1 of 1 episodes failed"):
        collect(jobs(1), make_env, AGENT, only({0}, PolicyError("down")), sampling=SAMPLING)


def test_environment_that_cannot_be_made_is_a_sandbox_failure() -> None:
    def factory() -> Any:
        raise SandboxUnavailableError("no user namespaces")

    run = collect(jobs(2), factory, AGENT, ScriptedPolicy([]), sampling=SAMPLING, retries=0, max_failed_share=1.0)
    assert [(e.status, e.reason) for e in run.episodes] == [("failed", "sandbox")] * 2
    assert run.episodes[0].detail == "SandboxUnavailableError: no user namespaces"


def test_agent_that_raises_is_a_harness_failure(make_env) -> None:
    class Rude:
        name = "rude"

        def run(self, env, policy, **_):
            raise IndexError("oops")

    run = collect(jobs(1), make_env, Rude(), None, sampling=SAMPLING, max_failed_share=1.0, retries=0)
    episode = run.episodes[0]
    assert (episode.harness, episode.status, episode.reason, episode.detail) == (
        "rude",
        "failed",
        "harness",
        "IndexError: oops",
    )


def test_agent_that_returns_no_episode_is_a_harness_failure(make_env) -> None:
    class Silent:
        name = "silent"

        def run(self, env, policy, **_):
            return None

    agent: Any = Silent()
    run = collect(jobs(2), make_env, agent, None, sampling=SAMPLING, max_failed_share=1.0, retries=0)
    assert [(e.status, e.reason) for e in run.episodes] == [("failed", "harness")] * 2
    assert run.episodes[0].detail == "HarnessError: the agent returned NoneType, not an Episode"


def test_environment_that_cannot_be_closed_does_not_hold_the_run(make_env) -> None:
    class Sticky:
        def close(self) -> None:
            raise OSError("busy")

    class Rude:
        name = "rude"

        def run(self, env, policy, **_):
            raise IndexError("oops")

    factory: Any = Sticky
    run = collect(jobs(3), factory, Rude(), None, sampling=SAMPLING, concurrency=1, max_failed_share=1.0, retries=0)
    assert [e.detail for e in run.episodes] == ["IndexError: oops"] * 3


def test_wrong_input_is_refused(make_env) -> None:
    policy = ScriptedPolicy([SUBMIT])
    with pytest.raises(ConfigError, match="test/clamp"):
        collect(jobs(2, task="test/clmp"), make_env, AGENT, policy, sampling=SAMPLING)
    with pytest.raises(ConfigError, match="used twice, such as 'e0'"):
        collect([*jobs(1), *jobs(1)], make_env, AGENT, policy, sampling=SAMPLING)
    with pytest.raises(ConfigError, match="unknown strategy 'plan'; did you mean 'plain'"):
        collect(jobs(1), make_env, AGENT, policy, sampling=SAMPLING, strategy="plan")
    with pytest.raises(ConfigError, match="concurrency must be at least 1"):
        collect(jobs(1), make_env, AGENT, policy, sampling=SAMPLING, concurrency=0)
    with pytest.raises(ConfigError, match="retries must be at least 0"):
        collect(jobs(1), make_env, AGENT, policy, sampling=SAMPLING, retries=-1)
    assert collect([], make_env, AGENT, policy, sampling=SAMPLING).episodes == []


def test_cancel_kills_what_runs_and_accounts_for_every_job(make_env) -> None:
    """Six jobs, two workers; the third episode starts a command that would run for a minute."""
    cancel, busy = threading.Event(), threading.Event()
    seeds = by_call_seed(6)

    def script(call: Call) -> str:
        if call.turn == 0 and seeds[call.params.seed or 0] >= 2:
            busy.set()
            return "```bash\nsleep 60\n```"
        return SUBMIT

    def pull() -> None:
        busy.wait()
        time.sleep(0.3)
        cancel.set()

    puller = threading.Thread(target=pull)
    puller.start()
    seen: list[str] = []
    run = collect(
        jobs(6),
        make_env,
        AGENT,
        ScriptedPolicy(script),
        sampling=SAMPLING,
        concurrency=2,
        cancel=cancel,
        on_episode=lambda e: seen.append(e.id),
    )
    puller.join()
    assert [e.status for e in run.episodes] == ["finished"] * 2 + ["cancelled"] * 4
    assert [e.reward for e in run.episodes] == [0.0, 0.0, None, None, None, None]
    assert set(seen) == {"e0", "e1", "e2", "e3"}
    assert run.episodes[4].detail == "the run stopped before it began"
    assert workers() == []


def test_policy_that_hangs_does_not_hold_the_run(make_env) -> None:
    cancel, asked, release = threading.Event(), threading.Event(), threading.Event()

    def script(call: Call) -> str:
        asked.set()
        cancel.set()
        release.wait(30)
        return SUBMIT

    run = collect(jobs(1), make_env, AGENT, ScriptedPolicy(script), sampling=SAMPLING, cancel=cancel, grace=0.2)
    assert asked.is_set()
    assert (run.episodes[0].status, run.episodes[0].detail) == (
        "cancelled",
        "stopped while the policy was still busy",
    )
    release.set()
    for thread in workers():
        thread.join()


def test_interrupt_from_the_caller_is_raised_after_the_clean_up(make_env) -> None:
    kept: list[Episode] = []

    def stop(episode: Episode) -> None:
        kept.append(episode)
        if len(kept) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(
            jobs(20),
            make_env,
            AGENT,
            ScriptedPolicy([LOOK, LOOK, SUBMIT]),
            sampling=SAMPLING,
            concurrency=2,
            on_episode=stop,
        )
    assert 1 <= len(kept) < 20
    assert workers() == []


def test_episodes_stream_to_disk(make_env, tmp_path) -> None:
    path = tmp_path / "episodes.jsonl"
    with EpisodeWriter(path) as writer:
        run = collect(
            jobs(4),
            make_env,
            AGENT,
            only({3}, OSError("gone"), times=1),
            sampling=SAMPLING,
            concurrency=4,
            on_episode=writer.write,
        )
    stored = {e.id: e for e in read_episodes(path).episodes}
    assert set(stored) == {"e0", "e1", "e2", "e3", "e3.retry1"}
    assert [stored[e.id].segments for e in run.episodes] == [e.segments for e in run.episodes]

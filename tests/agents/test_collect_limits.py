"""What a run may use, which failures are tried again, when a group is complete, and who plays."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from forkgym.agents.base import Episode, SamplingParams
from forkgym.agents.collect import Job, Progress, collect, enough
from forkgym.agents.errors import PolicyError
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.loops.bash import BashAgent
from forkgym.agents.loops.mix import MixAgent, agent_of
from forkgym.agents.loops.oracle import NopAgent, OracleAgent
from forkgym.agents.loops.sampling import turn_seed
from forkgym.agents.policies.scripted import Call, ScriptedPolicy
from forkgym.agents.registry import make_agent
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.errors import ConfigError
from forkgym.sandboxes import backend
from forkgym.sandboxes.errors import ImageError, SandboxError

FORMAT = ChatML(ByteTokenizer())
AGENT = BashAgent(FORMAT)
SAMPLING = SamplingParams(max_tokens=200)
FIX = "```bash\nsed -i '5s/x/high/' clamp.py\n```"
SLEEP = "```bash\nsleep 120\n```"
SUBMIT = "```bash\nsubmit\n```"
TOKENS = len(FIX) + len(SUBMIT) + 2  # bytes, and the token that ends each turn


def jobs(n: int, size: int = 4) -> list[Job]:
    return [Job("test/clamp", seed=i, group=f"g{i // size}", id=f"e{i}") for i in range(n)]


def by_job(script: Any, n: int = 64) -> ScriptedPolicy:
    """A policy that is told the job's seed and the turn."""
    seeds = {turn_seed(seed, turn): (seed, turn) for seed in range(n) for turn in range(4)}

    def say(call: Call) -> Any:
        return script(*seeds[call.params.seed or 0])

    return ScriptedPolicy(say)


SOLVE = ScriptedPolicy([FIX, SUBMIT])


class Refusing:
    """A backend that cannot create a sandbox, and counts how often it was asked."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked = 0
        self.inner = backend("local")
        self.name = self.inner.name

    def create(self, spec, snapshot=None):
        self.asked += 1
        raise self.error

    def __getattr__(self, name):
        return getattr(self.inner, name)


@pytest.mark.parametrize(
    ("error", "asked", "attempts"), [(ImageError("no such image"), 1, 1), (SandboxError("x"), 9, 3)]
)
def test_what_would_fail_alike_is_not_tried_again(make_env, error: Exception, asked: int, attempts: int) -> None:
    """A reset tries three sandboxes, a job three attempts; for an image that is not there, one of one."""
    refusing: Any = Refusing(error)
    run = collect(
        jobs(1), lambda: make_env(sandbox=refusing), AGENT, SOLVE, sampling=SAMPLING, retries=2, max_failed_share=1.0
    )
    assert refusing.asked == asked
    assert len(run.retried) + 1 == attempts
    (episode,) = run.episodes
    assert (episode.status, episode.reason, episode.permanent) == ("failed", "sandbox", asked == 1)
    assert str(error) in episode.detail


def test_an_environment_without_its_image_is_made_once() -> None:
    made: list[int] = []

    def factory() -> Any:
        made.append(1)
        raise ImageError("no such image")

    run = collect(jobs(2), factory, AGENT, SOLVE, sampling=SAMPLING, retries=5, max_failed_share=1.0)
    assert len(made) == 2
    assert run.retried == []


def test_each_kind_of_failure_has_its_own_retries(make_env) -> None:
    """Job 0 fails in the engine for ever, job 2 twice in the engine, job 1 never; the rude agent in the harness."""
    calls: Counter[int] = Counter()

    def script(seed: int, turn: int) -> Any:
        calls[seed] += 1
        return PolicyError("down") if seed == 0 or (seed == 2 and calls[2] <= 2) else SUBMIT

    class Rude:
        name = "rude"

        def run(self, env, policy, **_):
            raise IndexError("oops")

    options: Any = {"sampling": SAMPLING, "retries": {"engine": 2, "sandbox": 1}, "max_failed_share": 1.0}
    run = collect(jobs(3), make_env, AGENT, by_job(script), concurrency=1, **options)
    assert [(e.id, e.status) for e in run.episodes] == [
        ("e0.retry2", "failed"),
        ("e1", "finished"),
        ("e2.retry2", "finished"),
    ]
    run = collect(jobs(1), make_env, Rude(), None, **options)
    assert [(e.id, e.reason) for e in run.episodes] == [("e0", "harness")]


def test_a_group_is_told_once_when_its_last_member_has_ended_for_good(make_env) -> None:
    """Member e1 of the first group fails first, and is played again after all others."""
    failed: list[int] = []

    def script(seed: int, turn: int) -> Any:
        if seed == 1 and not failed:
            failed.append(1)
            return PolicyError("hiccup")
        return SUBMIT if turn else FIX

    told: list[tuple[str, list[str], list[float | None]]] = []
    seen: list[str] = []
    run = collect(
        jobs(6, size=3),
        make_env,
        AGENT,
        by_job(script),
        sampling=SAMPLING,
        concurrency=1,
        on_episode=lambda e: seen.append(e.id),
        on_group=lambda name, members: told.append((name, [e.id for e in members], [e.reward for e in members])),
    )
    assert seen == ["e0", "e1", "e2", "e3", "e4", "e5", "e1.retry1"]
    assert told == [("g1", ["e3", "e4", "e5"], [1.0] * 3), ("g0", ["e0", "e1.retry1", "e2"], [1.0] * 3)]
    assert [e.id for e in run.retried] == ["e1"]


def test_progress_adds_up(make_env) -> None:
    failing = by_job(lambda seed, turn: PolicyError("down") if seed == 1 else SUBMIT if turn else FIX)
    steps: list[Progress] = []
    options: Any = {"sampling": SAMPLING, "concurrency": 1, "retries": 1, "max_failed_share": 1.0}
    collect(jobs(3), make_env, AGENT, failing, on_progress=steps.append, **options)
    assert [(p.jobs, p.done, p.scored, p.failed, p.attempts) for p in steps] == [
        (3, 1, 1, 0, 1),
        (3, 2, 2, 0, 3),
        (3, 3, 2, 1, 4),
    ]
    assert [p.sampled_tokens for p in steps] == [TOKENS, 2 * TOKENS, 2 * TOKENS]
    assert 0 < steps[0].seconds <= steps[2].seconds


def test_past_the_token_budget_nothing_new_begins(make_env) -> None:
    seen: list[str] = []
    groups: list[str] = []
    run = collect(
        jobs(8),
        make_env,
        AGENT,
        SOLVE,
        sampling=SAMPLING,
        concurrency=1,
        max_sampled_tokens=2 * TOKENS + 1,
        on_episode=lambda e: seen.append(e.id),
        on_group=lambda name, members: groups.append(name),
    )
    played = len(seen)
    assert played in (3, 4)  # the worker may have begun one more before the third was counted
    assert run.stopped == "tokens"
    assert [e.status for e in run.episodes] == ["finished"] * played + ["cancelled"] * (8 - played)
    assert run.episodes[7].detail == "the tokens of the run were used up before it began"
    assert run.episodes[7].reward is None
    assert sorted(groups) == ["g0", "g1"]


def test_past_the_time_budget_failures_are_not_retried_and_the_rest_is_finished(make_env) -> None:
    failing = by_job(lambda seed, turn: PolicyError("down"))
    options: Any = {"sampling": SAMPLING, "concurrency": 1, "retries": 99, "max_failed_share": 1.0}
    run = collect(jobs(40), make_env, AGENT, failing, max_seconds=1e-9, **options)
    assert run.stopped == "seconds"
    assert {e.status for e in run.episodes} == {"failed", "cancelled"}


@pytest.mark.parametrize("size", [1, 4])
def test_past_the_time_budget_what_runs_can_be_cancelled(make_env, size: int) -> None:
    run = collect(
        jobs(4, size),
        make_env,
        AGENT,
        ScriptedPolicy([SLEEP, SUBMIT]),
        sampling=SAMPLING,
        concurrency=2,
        max_seconds=0.5,
        over_budget="cancel",
    )
    assert run.stopped == "seconds"
    assert [e.status for e in run.episodes] == ["cancelled"] * 4
    assert {e.reward for e in run.episodes} == {None}


def test_a_group_that_has_enough_does_not_wait_for_the_others(make_env) -> None:
    """carm: of each group of four, two solve the task while the third sleeps; the fourth is perhaps not even begun."""
    asleep = [threading.Event(), threading.Event()]

    def script(seed: int, turn: int) -> str:
        group, member = divmod(seed, 4)
        if member == 2:
            asleep[group].set()
        if turn == 1:
            asleep[group].wait(60)
        return SLEEP if member > 1 else SUBMIT if turn else FIX

    told: dict[str, list[Episode]] = {}
    seen: list[str] = []
    run = collect(
        jobs(8),
        make_env,
        AGENT,
        by_job(script),
        sampling=SAMPLING,
        concurrency=3,
        settle=enough(2),
        on_episode=lambda e: seen.append(e.id),
        on_group=told.__setitem__,
    )
    assert [e.status for e in run.episodes] == ["finished", "finished", "cancelled", "cancelled"] * 2
    assert [e.reward for e in run.episodes] == [1.0, 1.0, None, None] * 2
    cancelled = [e for e in run.episodes if e.status == "cancelled"]
    assert all(e.detail.startswith("its group has 2 scored episodes") for e in cancelled)
    for sleeper in (run.episodes[2], run.episodes[6]):  # what was sampled before is kept, for trainers to mask
        assert sum(sleeper.segments[0].sampled) == len(SLEEP) + 1
        assert sleeper.id in seen
    assert {name: [e.id for e in members] for name, members in told.items()} == {
        "g0": ["e0", "e1", "e2", "e3"],
        "g1": ["e4", "e5", "e6", "e7"],
    }
    assert run.stopped == ""


def test_a_hopeless_group_is_given_up(make_env) -> None:
    """A rule of one's own: a group whose first three members are not solved is not played to its end."""

    def hopeless(ended: Any) -> str:
        return "nobody solves it" if len(ended) >= 3 and not any(e.reward for e in ended) else ""

    script = by_job(lambda seed, turn: FIX if seed == 9 and turn == 0 else SUBMIT)
    run = collect(jobs(16, 8), make_env, AGENT, script, sampling=SAMPLING, concurrency=1, settle=hopeless)
    finished = [e.status == "finished" for e in run.episodes]
    assert sum(finished[:8]) in (3, 4)  # the worker may have begun the fourth
    assert finished[8:] == [True] * 8
    assert run.episodes[7].detail == "nobody solves it"


def test_limits_that_make_no_sense_are_refused(make_env) -> None:
    for options, message in (
        ({"retries": {"sandbx": 1}}, "unknown kind of failure 'sandbx'; did you mean 'sandbox'"),
        ({"retries": {"sandbox": -1}}, "retries must be at least 0, not -1"),
        ({"max_seconds": 0}, "max_seconds must be above 0, not 0"),
        ({"max_sampled_tokens": 0}, "max_sampled_tokens must be at least 1, not 0"),
        ({"over_budget": "stop"}, "over_budget is 'finish' or 'cancel', not 'stop'"),
        ({"on": "moon"}, "unknown workplace 'moon'"),
    ):
        more: Any = options
        with pytest.raises(ConfigError, match=message):
            collect(jobs(1), make_env, AGENT, SOLVE, sampling=SAMPLING, **more)


@pytest.mark.parametrize("per", ["episode", "group"])
def test_a_mix_is_drawn_by_seed_and_named_in_the_record(make_env, per: Any) -> None:
    mix = MixAgent([(OracleAgent(), 3.0), (NopAgent(), 1.0)], per=per, seed=2)
    todo = jobs(12, size=3)
    run = collect(todo, make_env, mix, None, sampling=SAMPLING, concurrency=2)
    who = [e.harness for e in run.episodes]
    assert set(who) == {"oracle", "nop"}
    assert [e.reward for e in run.episodes] == [float(name == "oracle") for name in who]
    assert who == [mix.pick(job.group, job.seed).name for job in todo]
    if per == "group":
        assert all(len({e.harness for e in run.episodes if e.group == f"g{k}"}) == 1 for k in range(4))


def test_a_mix_holds_its_weights_and_another_seed_draws_anew() -> None:
    """2000 draws at 0.75: the count lies within five standard deviations (97) of 1500."""
    one, two = (MixAgent([(OracleAgent(), 0.75), (NopAgent(), 0.25)], seed=seed) for seed in (1, 2))
    draws = [[mix.pick("g", n).name for n in range(2000)] for mix in (one, two)]
    assert all(abs(names.count("oracle") - 1500) < 97 for names in draws)
    assert draws[0] != draws[1]
    assert agent_of(MixAgent([(one, 1.0)]), "g", 5).name == draws[0][5]


def test_a_mix_by_name_gives_each_agent_its_own_options() -> None:
    spec = {"bash": {"weight": 1, "system": None}, "tools": 1, "oracle": 2}
    mix: Any = make_agent({"name": "mix", "agents": spec, "per": "group"}, format=FORMAT)
    names = Counter(mix.pick(f"g{n}", 0).name for n in range(400))
    assert set(names) == {"bash", "tools", "oracle"}
    assert names["oracle"] > names["bash"]
    twice: Any = make_agent(
        {"name": "mix", "agents": {"short": {"agent": "bash", "observation_chars": 9}, "bash": 1}}, format=FORMAT
    )
    assert {twice.pick("g", n).name for n in range(50)} == {"short", "bash"}
    for agents, message in (
        ({}, "at least one"),
        ({"bash": 0}, "a weight above 0"),
        ({"bahs": 1}, "unknown agent 'bahs'"),
        ({"bash": {"sytem": ""}}, "sytem"),
        ({"bash": "much"}, "its weight is a number"),
    ):
        with pytest.raises(ConfigError, match=message):
            make_agent({"name": "mix", "agents": agents}, format=FORMAT)
    with pytest.raises(ConfigError, match="per 'episode' or 'group', not 'job'"):
        make_agent({"name": "mix", "agents": {"nop": 1}, "per": "job"})

"""Many episodes at once, on threads of this machine or on Ray. A bad episode is data, not a crash.

Each worker keeps one environment and reuses it; a failed episode costs it that environment. Failed episodes are retried
under a new episode id; every attempt reaches ``on_episode``. Results come in the order of the jobs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from forkgym.agents.base import Agent, Episode, Policy, SamplingParams
from forkgym.agents.crew import Crew, Parts, Ticket, Workplace
from forkgym.agents.ledger import Budget, Job, Ledger, Listeners, Progress, Retries, Settle, Stopped, check_failures
from forkgym.agents.loops.mix import agent_of
from forkgym.envs.core import CodingEnv
from forkgym.errors import ConfigError
from forkgym.registry import resolve

__all__ = ["Collection", "Job", "Progress", "Settle", "collect", "enough", "plain"]

STRATEGIES = {"plain": "forkgym.agents.collect:plain"}
WORKPLACES = {"ray": "forkgym.agents.ray_workers:RayWorkers", "threads": "forkgym.agents.workers:Threads"}
EXTRAS = {"ray": "ray"}


@dataclass
class Collection:
    """``episodes``: the last attempt of each job, in job order. ``retried``: failed attempts that were played again.

    ``stopped`` says what ended the run before all jobs were played: ``cancelled``, ``seconds``, ``tokens`` or nothing.
    """

    episodes: list[Episode] = field(default_factory=list[Episode])
    retried: list[Episode] = field(default_factory=list[Episode])
    stopped: Stopped = ""


class Strategy(Protocol):
    """How one attempt at a job is played."""

    def __call__(
        self, env: CodingEnv, agent: Agent, policy: Policy | None, job: Job, episode: str, sampling: SamplingParams
    ) -> Episode: ...


def plain(
    env: CodingEnv, agent: Agent, policy: Policy | None, job: Job, episode: str, sampling: SamplingParams
) -> Episode:
    """The agent plays the task once, from start to end."""
    return agent.run(env, policy, task=job.task, seed=job.seed, sampling=sampling, episode=episode, group=job.group)


def enough(members: int) -> Settle:
    """Settles a group once this many of its members are scored: start more than that, and nobody waits for the last."""

    def settle(ended: Sequence[Episode]) -> str:
        scored = sum(episode.scored for episode in ended)
        return f"its group has {scored} scored episodes" if scored >= members else ""

    return settle


def collect(
    jobs: Sequence[Job],
    env_factory: Callable[[], CodingEnv],
    agent: Agent,
    policy: Policy | None,
    *,
    sampling: SamplingParams,
    concurrency: int = 8,
    retries: Retries = 1,
    max_failed_share: float = 0.5,
    min_attempts: int = 8,
    max_seconds: float | None = None,
    max_sampled_tokens: int | None = None,
    over_budget: Literal["finish", "cancel"] = "finish",
    settle: Settle | None = None,
    on_episode: Callable[[Episode], None] | None = None,
    on_group: Callable[[str, list[Episode]], None] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    cancel: threading.Event | None = None,
    grace: float = 5.0,
    strategy: str = "plain",
    on: str | Callable[[Parts], Workplace] = "threads",
) -> Collection:
    """Play all jobs and return their episodes.

    - ``retries``: how often a failed job is played again, at most; or for each kind of failure how often, such as
      ``{"sandbox": 2, "engine": 1}``. A failure that would come again (``Episode.permanent``) is not retried.
    - ``max_seconds`` of wall time, ``max_sampled_tokens`` over all attempts that have ended: past one of them no
      episode is begun; those under way are finished, or with ``over_budget="cancel"`` cancelled.
    - ``settle``: asked about a group whenever one of its members ends; what it says cancels the other members. A
      cancelled episode has no reward, and trainers mask its tokens. ``enough(n)`` is one.
    - ``on_episode`` is called in the calling thread with every attempt as it ends, then ``on_progress``, and once a
      group's members have all ended for good, ``on_group`` with its name and members in the order of the jobs.
    - ``on``: ``threads``, ``ray``, or something that makes a workplace, such as ``RayWorkers`` with its options.
    - Setting ``cancel`` stops promptly: the environments are closed and what is unfinished becomes ``cancelled``, jobs
      not yet begun included (those do not reach ``on_episode``). Ctrl-C does the same and is raised again. ``grace``
      is how many seconds a policy that is busy then may still take; after that its episode is given up.

    Raises ``FailureBudgetError`` once more than ``max_failed_share`` of at least ``min_attempts`` attempts have failed,
    or if more than that share of the jobs failed in the end. Raises ``ConfigError`` for wrong input, such as a task
    that does not exist.
    """
    if concurrency < 1:
        raise ConfigError(f"concurrency must be at least 1, not {concurrency}")
    if over_budget not in ("finish", "cancel"):
        raise ConfigError(f"over_budget is 'finish' or 'cancel', not {over_budget!r}")
    play: Strategy = resolve("strategy", strategy, STRATEGIES)
    make: Callable[[Parts], Workplace] = resolve("workplace", on, WORKPLACES, EXTRAS) if isinstance(on, str) else on
    agents = [agent_of(agent, job.group, job.seed) for job in jobs]

    def attempt(env: CodingEnv, policy: Policy | None, ticket: Ticket) -> Episode:
        return play(env, agents[ticket.index], policy, jobs[ticket.index], ticket.episode, sampling)

    def blank(ticket: Ticket) -> Episode:
        job = jobs[ticket.index]
        return Episode(ticket.episode, job.task, job.group, agents[ticket.index].name, job.seed)

    budget = Budget(retries, max_failed_share, min_attempts, max_seconds, max_sampled_tokens)
    ledger = Ledger(jobs, budget, Listeners(on_episode, on_group, on_progress), blank)
    crew = Crew(make(Parts(env_factory, policy, attempt, blank)), blank, grace)
    try:
        crew.start([Ticket(index, job.id) for index, job in enumerate(jobs)], concurrency)
        _play(crew, ledger, settle, cancel, over_budget)
    finally:
        for ticket, episode in crew.stop():
            ledger.record(ticket, episode)
    collection = Collection(ledger.close(), stopped=ledger.stopped)
    last = {id(episode) for episode in collection.episodes}
    collection.retried = [episode for tries in ledger.tries() for episode in tries if id(episode) not in last]
    check_failures(collection.episodes, max_failed_share, 1)
    return collection


def _play(crew: Crew, ledger: Ledger, settle: Settle | None, cancel: threading.Event | None, over_budget: str) -> None:
    """Until all has ended, or what is left is to be cancelled."""
    while crew.busy:
        if cancel is not None and cancel.is_set():
            ledger.stopped = "cancelled"
            return
        for ticket, episode in crew.wait():
            ledger.record(ticket, episode)
            again = ledger.next_try(ticket)
            if again is not None:
                crew.put(again)
            if settle is not None:
                others, why = ledger.settle(ticket, settle)
                ledger.drop(crew.withdraw(others), why)
                crew.halt(others, why)
        if not ledger.stopped and (ended := ledger.used_up()):
            ledger.stopped = ended
            ledger.drop(crew.withdraw(), f"the {ended} of the run were used up before it began")
            if over_budget == "cancel":
                return

"""Many episodes at once, on threads of one machine. A bad episode is data, not a crash.

Each worker keeps one environment and reuses it; a failed episode costs it that environment. Failed episodes are retried
under a new episode id; every attempt reaches ``on_episode``. Results come in the order of the jobs.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from forkgym.agents.base import Agent, Episode, Policy, SamplingParams
from forkgym.agents.crew import Crew, Ticket
from forkgym.agents.errors import FailureBudgetError
from forkgym.agents.loops.recording import cancel as cancel_episode
from forkgym.envs.core import CodingEnv
from forkgym.errors import ConfigError
from forkgym.registry import resolve

STRATEGIES = {"plain": "forkgym.agents.collect:plain"}


@dataclass(frozen=True)
class Job:
    """One episode to play. ``id`` is that of its first attempt; retry k has the id ``<id>.retry<k>``."""

    task: str
    seed: int
    group: str
    id: str


@dataclass
class Collection:
    """``episodes``: the last attempt of each job, in job order. ``retried``: failed attempts that were played again."""

    episodes: list[Episode] = field(default_factory=list[Episode])
    retried: list[Episode] = field(default_factory=list[Episode])


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


def collect(
    jobs: Sequence[Job],
    env_factory: Callable[[], CodingEnv],
    agent: Agent,
    policy: Policy | None,
    *,
    sampling: SamplingParams,
    concurrency: int = 8,
    retries: int = 1,
    max_failed_share: float = 0.5,
    min_attempts: int = 8,
    on_episode: Callable[[Episode], None] | None = None,
    cancel: threading.Event | None = None,
    grace: float = 5.0,
    strategy: str = "plain",
) -> Collection:
    """Play all jobs and return their episodes.

    ``on_episode`` is called in the calling thread with every attempt as it ends. Setting ``cancel`` stops promptly:
    the environments are closed and what is unfinished becomes ``cancelled``, jobs not yet begun included (those do not
    reach ``on_episode``). Ctrl-C does the same and is raised again. ``grace`` is how many seconds a policy that is busy
    then may still take; after that its episode is given up.

    Raises ``FailureBudgetError`` once more than ``max_failed_share`` of at least ``min_attempts`` attempts have failed,
    or if more than that share of the jobs failed in the end. Raises ``ConfigError`` for wrong input, such as a task
    that does not exist.
    """
    _check_jobs(jobs, concurrency, retries)
    play: Strategy = resolve("strategy", strategy, STRATEGIES)

    def attempt(env: CodingEnv, policy: Policy | None, ticket: Ticket) -> Episode:
        return play(env, agent, policy, jobs[ticket.index], ticket.episode, sampling)

    def blank(ticket: Ticket) -> Episode:
        job = jobs[ticket.index]
        return Episode(ticket.episode, job.task, job.group, agent.name, job.seed)

    crew = Crew(env_factory, policy, attempt, blank, grace)
    ended: dict[int, list[Episode]] = {index: [] for index in range(len(jobs))}

    def keep(ticket: Ticket, episode: Episode) -> None:
        ended[ticket.index].append(episode)
        if on_episode is not None:
            on_episode(episode)

    try:
        crew.start([Ticket(index, job.id) for index, job in enumerate(jobs)], concurrency)
        while crew.busy and not (cancel and cancel.is_set()):
            for ticket, episode in crew.wait():
                keep(ticket, episode)
                if episode.status != "failed":
                    continue
                _check_budget([e for tries in ended.values() for e in tries], max_failed_share, min_attempts)
                tries = len(ended[ticket.index])
                if tries <= retries:
                    crew.put(Ticket(ticket.index, f"{jobs[ticket.index].id}.retry{tries}"))
    finally:
        for ticket, episode in crew.stop():
            keep(ticket, episode)
    collection = Collection()
    for index, job in enumerate(jobs):
        *earlier, last = ended[index] or [_never_begun(blank(Ticket(index, job.id)))]
        collection.retried += earlier
        collection.episodes.append(last)
    _check_budget(collection.episodes, max_failed_share, 1)
    return collection


def _never_begun(episode: Episode) -> Episode:
    cancel_episode(episode, "the run stopped before it began")
    return episode


def _check_jobs(jobs: Sequence[Job], concurrency: int, retries: int) -> None:
    doubles = sorted(id for id, count in Counter(job.id for job in jobs).items() if count > 1)
    if doubles:
        raise ConfigError(f"{len(doubles)} episode ids are used twice, such as {doubles[0]!r}; each job needs its own")
    if concurrency < 1:
        raise ConfigError(f"concurrency must be at least 1, not {concurrency}")
    if retries < 0:
        raise ConfigError(f"retries must be at least 0, not {retries}")


def _check_budget(attempts: Sequence[Episode], max_share: float, at_least: int) -> None:
    """Raise if too large a share failed; cancelled episodes do not count."""
    failed = [e for e in attempts if e.status == "failed"]
    counted = sum(e.status != "cancelled" for e in attempts)
    if counted < at_least or len(failed) <= max_share * counted:
        return
    reasons = ", ".join(f"{reason} {n}" for reason, n in Counter(e.reason for e in failed).most_common())
    raise FailureBudgetError(
        f"{len(failed)} of {counted} episodes failed, more than {max_share:.0%}: {reasons}. "
        f"The last one, {failed[-1].id!r}: {failed[-1].detail}. None of them was scored; mend the cause and start again"
    )

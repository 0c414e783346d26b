"""Who has played what, in one run of ``collect``: attempts, retries, groups, and what was used up."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from forkgym.agents.base import Episode
from forkgym.agents.crew import Ticket
from forkgym.agents.errors import FailureBudgetError
from forkgym.agents.loops.recording import cancel
from forkgym.envs.base import FailureKind
from forkgym.errors import ConfigError
from forkgym.registry import unknown

KINDS: tuple[str, ...] = get_args(FailureKind)
Retries = int | Mapping[FailureKind, int]
Stopped = Literal["", "cancelled", "seconds", "tokens"]
Settle = Callable[[Sequence[Episode]], str]
"""From the members of a group that have ended to why the others need not end, or ``""``."""


@dataclass(frozen=True)
class Job:
    """One episode to play. ``id`` is that of its first attempt; retry k has the id ``<id>.retry<k>``."""

    task: str
    seed: int
    group: str
    id: str


@dataclass(frozen=True)
class Progress:
    """Where a run stands: of ``jobs``, ``done`` have ended for good. ``attempts`` counts retries too.

    ``scored``, ``failed`` and ``cancelled`` are those of ``done``. ``sampled_tokens`` are those of all attempts that
    have ended, ``seconds`` the wall time so far.
    """

    jobs: int
    done: int
    scored: int
    failed: int
    cancelled: int
    attempts: int
    sampled_tokens: int
    seconds: float


@dataclass(frozen=True)
class Budget:
    """What a run may use. ``failed_share`` counts once there are ``min_attempts``; see ``collect`` for the rest."""

    retries: Retries = 1
    failed_share: float = 0.5
    min_attempts: int = 8
    seconds: float | None = None
    sampled_tokens: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.retries, Mapping):
            for kind, times in self.retries.items():
                if kind not in KINDS:
                    raise ConfigError(f"retries: {unknown('kind of failure', kind, list(KINDS))}")
                _at_least("retries", times, 0)
        else:
            _at_least("retries", self.retries, 0)
        if self.seconds is not None and not self.seconds > 0:
            raise ConfigError(f"max_seconds must be above 0, not {self.seconds}")
        if self.sampled_tokens is not None:
            _at_least("max_sampled_tokens", self.sampled_tokens, 1)


@dataclass(frozen=True)
class Listeners:
    """Whom to tell; see ``collect``."""

    on_episode: Callable[[Episode], None] | None = None
    on_group: Callable[[str, list[Episode]], None] | None = None
    on_progress: Callable[[Progress], None] | None = None


@dataclass
class Ledger:
    """The state of a run. ``blank`` makes the record of an attempt that never began.

    ``stopped`` is set once nothing new is to begin.
    """

    jobs: Sequence[Job]
    budget: Budget
    listeners: Listeners
    blank: Callable[[Ticket], Episode]
    stopped: Stopped = ""

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._attempts: list[Episode] = []
        self._sampled = 0.0
        self._tries: dict[int, list[Episode]] = defaultdict(list)
        self._final: dict[int, Episode] = {}
        self._counts: Counter[str] = Counter()
        self._settled: set[str] = set()
        doubles = sorted(id for id, count in Counter(job.id for job in self.jobs).items() if count > 1)
        if doubles:
            raise ConfigError(f"{len(doubles)} episode ids are used twice, such as {doubles[0]!r}; each needs its own")
        self._groups: dict[str, list[int]] = defaultdict(list)
        for index, job in enumerate(self.jobs):
            self._groups[job.group].append(index)

    # ---- what happens

    def record(self, ticket: Ticket, episode: Episode) -> None:
        """An attempt has ended."""
        self._attempts.append(episode)
        self._sampled += episode.metrics.get("sampled_tokens", 0.0)
        self._tries[ticket.index].append(episode)
        if self.listeners.on_episode is not None:
            self.listeners.on_episode(episode)

    def next_try(self, ticket: Ticket) -> Ticket | None:
        """The retry of an attempt that was recorded; without one its job has ended for good.

        Raises ``FailureBudgetError`` if too many attempts have failed.
        """
        last = self._tries[ticket.index][-1]
        if last.status == "failed":
            check_failures(self._attempts, self.budget.failed_share, self.budget.min_attempts)
            if self._worth_a_retry(ticket.index):
                return Ticket(ticket.index, f"{self.jobs[ticket.index].id}.retry{len(self._tries[ticket.index])}")
        self._finish(ticket.index, last)
        return None

    def drop(self, tickets: Iterable[Ticket], why: str) -> None:
        """These attempts will not begin. A job that was tried before keeps its last attempt."""
        for ticket in tickets:
            self._finish(ticket.index, self._last(ticket, why))

    def close(self) -> list[Episode]:
        """The last attempt of each job, in order; those of jobs not begun are cancelled."""
        for index, job in enumerate(self.jobs):
            if index not in self._final:
                self._finish(index, self._last(Ticket(index, job.id), "the run stopped before it began"))
        return [self._final[index] for index in range(len(self.jobs))]

    # ---- what follows

    def settle(self, ticket: Ticket, rule: Settle) -> tuple[list[int], str]:
        """The members of this attempt's group that need not end, and why; empty if they must."""
        group = self.jobs[ticket.index].group
        members = self._groups[group]
        left = [index for index in members if index not in self._final]
        if not left or group in self._settled:
            return [], ""
        why = rule([self._final[index] for index in members if index in self._final])
        if not why:
            return [], ""
        self._settled.add(group)
        return left, why

    def used_up(self) -> Stopped:
        """The budget that is used up, if one is."""
        seconds, tokens = self.budget.seconds, self.budget.sampled_tokens
        if seconds is not None and time.monotonic() - self._began >= seconds:
            return "seconds"
        if tokens is not None and self._sampled >= tokens:
            return "tokens"
        return ""

    def progress(self) -> Progress:
        """Where the run stands now."""
        return Progress(
            jobs=len(self.jobs),
            done=len(self._final),
            scored=self._counts["scored"],
            failed=self._counts["failed"],
            cancelled=self._counts["cancelled"],
            attempts=len(self._attempts),
            sampled_tokens=int(self._sampled),
            seconds=time.monotonic() - self._began,
        )

    def tries(self) -> list[list[Episode]]:
        """All attempts of each job, in the order of the jobs."""
        return [self._tries[index] for index in range(len(self.jobs))]

    # ---- inside

    def _finish(self, index: int, episode: Episode) -> None:
        self._final[index] = episode
        self._counts["scored" if episode.scored else episode.status] += 1
        if self.listeners.on_progress is not None:
            self.listeners.on_progress(self.progress())
        group = self.jobs[index].group
        members = self._groups[group]
        if self.listeners.on_group is not None and all(member in self._final for member in members):
            self.listeners.on_group(group, [self._final[member] for member in members])

    def _last(self, ticket: Ticket, why: str) -> Episode:
        if tries := self._tries[ticket.index]:
            return tries[-1]
        episode = self.blank(Ticket(ticket.index, self.jobs[ticket.index].id))
        cancel(episode, why)
        return episode

    def _worth_a_retry(self, index: int) -> bool:
        tries, retries = self._tries[index], self.budget.retries
        last = tries[-1]
        if last.permanent or self.stopped or self.jobs[index].group in self._settled:
            return False
        if isinstance(retries, int):
            return len(tries) <= retries
        alike = sum(episode.reason == last.reason for episode in tries)
        return alike <= {**retries}.get(last.reason, 0)


def check_failures(attempts: Sequence[Episode], max_share: float, at_least: int) -> None:
    """Raise ``FailureBudgetError`` if too large a share failed; cancelled episodes do not count."""
    failed = [e for e in attempts if e.status == "failed"]
    counted = sum(e.status != "cancelled" for e in attempts)
    if counted < at_least or len(failed) <= max_share * counted:
        return
    reasons = ", ".join(f"{reason} {n}" for reason, n in Counter(e.reason for e in failed).most_common())
    raise FailureBudgetError(
        f"{len(failed)} of {counted} episodes failed, more than {max_share:.0%}: {reasons}. "
        f"The last one, {failed[-1].id!r}: {failed[-1].detail}. None of them was scored; mend the cause and start again"
    )


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(f"{name} must be at least {least}, not {value}")

"""Run jobs when they are due."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from tick.cron import Cron

_log = logging.getLogger("tick")


@dataclass
class Job:
    name: str
    cron: Cron
    run: Callable[[], object]
    due: datetime
    runs: int = 0
    failures: int = 0


class Scheduler:
    """Jobs by name. Not for use from several threads."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def every(self, name: str, cron: str, run: Callable[[], object], start: datetime | None = None) -> Job:
        """Add a job that runs at each time of ``cron`` after ``start`` (now). Raises ``ValueError`` for a name in use."""
        if name in self._jobs:
            raise ValueError(f"there is a job {name!r} already")
        parsed = Cron(cron)
        job = Job(name, parsed, run, parsed.after(start or datetime.now()))
        self._jobs[name] = job
        return job

    def remove(self, name: str) -> None:
        """Raises ``KeyError`` for a job that is not there."""
        del self._jobs[name]

    def jobs(self) -> list[Job]:
        return sorted(self._jobs.values(), key=lambda job: job.due)

    def next_due(self) -> datetime | None:
        return min((job.due for job in self._jobs.values()), default=None)

    def run_due(self, now: datetime) -> int:
        """Run what is due, and say how many jobs ran."""
        count = 0
        for job in self.jobs():
            if job.due > now or self._jobs.get(job.name) is not job:
                continue
            job.due = job.cron.after(now)
            count += 1
            self._run(job)
        return count

    def run_for_ever(self, pause: Callable[[float], object] = time.sleep) -> None:
        while (due := self.next_due()) is not None:
            pause(max(0.0, (due - datetime.now()).total_seconds()))
            self.run_due(datetime.now())

    def _run(self, job: Job) -> None:
        job.runs += 1
        try:
            job.run()
        except Exception:
            job.failures += 1
            _log.exception("the job %r failed", job.name)

"""When does a job run next, and a small scheduler that runs it."""

from tick.cron import Cron
from tick.fields import CronError, NeverError
from tick.scheduler import Scheduler

__all__ = ["Cron", "CronError", "NeverError", "Scheduler"]

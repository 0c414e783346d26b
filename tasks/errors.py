"""Errors of the task room.

TaskError
├── TaskFormatError (ConfigError)   task.yaml is wrong: names the file, the key and the line
├── TaskNotFoundError (KeyError)    no task has this id or matches this pattern
├── BuildError (ConfigError)        tasks can't be built from what was given, or not to where they should go
└── GradingError                    the grader itself failed: infrastructure, never a score
    └── SetupError                  a set-up command of the task failed
"""

from __future__ import annotations

from forkgym.errors import ConfigError, ForkGymError


class TaskError(ForkGymError):
    """Base of the room's errors."""


class TaskFormatError(TaskError, ConfigError):
    """A task folder is malformed."""


class TaskNotFoundError(TaskError, ConfigError, KeyError):
    """Nothing has this id or matches this pattern."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class BuildError(TaskError, ConfigError):
    """Tasks cannot be built from this repository, or not into this folder. No task was written."""


class GradingError(TaskError, RuntimeError):
    """The grader broke. The episode is unscored, not scored 0."""


class SetupError(GradingError):
    """A set-up command failed: no sandbox of this task can be had."""

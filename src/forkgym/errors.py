"""The root of every error that ForkGym raises on purpose.

    ForkGymError
    ├── ConfigError (ValueError)        a name, option or file is wrong: the message says what is allowed
    │   └── MissingExtraError (ImportError)   an optional dependency is absent: says which extra to install
    ├── sandboxes.errors.SandboxError   infrastructure
    ├── tasks.errors.TaskError          a task folder or a grader is wrong
    ├── envs.errors.EnvError            an episode is over, or a reset failed
    ├── agents.errors.AgentError        a policy or a harness failed
    └── trainers.errors.TrainerError    a run cannot go on

Each room draws its own tree in its ``errors.py``. A message says what happened, where, and what to do next.
"""

from __future__ import annotations


class ForkGymError(Exception):
    """Base of all errors raised on purpose by ForkGym."""


class ConfigError(ForkGymError, ValueError):
    """A name, option or configuration file is wrong; nothing was started."""


class MissingExtraError(ConfigError, ImportError):
    """A component needs an optional dependency that is not installed."""

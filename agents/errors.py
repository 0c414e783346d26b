"""Errors of the agent room.

AgentError (RuntimeError)
├── PolicyError        the model or its engine failed: infrastructure (`failed(engine)`)
├── ContextLengthError the prompt no longer fits the window: ends the episode as truncated(context)
├── HarnessError       an external harness crashed or hung: `failed(harness)`
├── ReplayError        the machine failed while an episode was replayed: nothing can be said about the episode
├── InstallError       a harness is not installed, or could not be: nothing was started
└── FailureBudgetError too large a share of episodes failed: the run stops and says why
"""

from __future__ import annotations

from forkgym.errors import ForkGymError


class AgentError(ForkGymError, RuntimeError):
    """Base of the room's errors."""


class PolicyError(AgentError):
    """The engine failed; the episode is not scored."""


class ContextLengthError(PolicyError):
    """The prompt plus at least one new token exceeds the model's window."""


class HarnessError(AgentError):
    """An external agent program failed."""


class ReplayError(AgentError):
    """A sandbox or the grader failed during a replay."""


class InstallError(AgentError):
    """An external agent program is not there."""


class FailureBudgetError(AgentError):
    """More episodes failed than the run allows."""

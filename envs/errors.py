"""Errors of the environment room.

    EnvError
    ├── ResetError (RuntimeError)                 every fresh sandbox failed during reset: infrastructure
    ├── EpisodeOverError (gymnasium ResetNeeded)  a method needs a running episode and there is none
    └── FailedError                               internal: the part that failed, on its way to ``info["failure"]``

An agent's wrong action never raises: it is answered with an observation. During ``step`` infrastructure failures are
reported in ``info["failure"]``, so that a loop ends in the ordinary way.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from gymnasium.error import ResetNeeded

from forkgym.envs.base import FailureKind
from forkgym.errors import ConfigError, ForkGymError
from forkgym.sandboxes.errors import ImageError, SandboxError


class EnvError(ForkGymError):
    """Base of the room's errors."""


class ResetError(EnvError, RuntimeError):
    """No sandbox could be made ready for the task."""


class EpisodeOverError(EnvError, ResetNeeded):
    """The episode has ended, or none was started: call ``reset()``."""


class FailedError(EnvError):
    """Something outside the agent failed; ``kind`` says which part."""

    def __init__(self, kind: FailureKind, cause: Exception) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.kind: FailureKind = kind


def is_permanent(error: BaseException) -> bool:
    """True if another try would fail alike: an image that is not there, wrong input, or an error caused by one."""
    if isinstance(error, ImageError | ConfigError):
        return True
    return error.__cause__ is not None and is_permanent(error.__cause__)


@contextmanager
def blame(kind: FailureKind) -> Generator[None]:
    """Turn any exception of the block into ``FailedError`` of this kind; a ``SandboxError`` is always ``sandbox``."""
    try:
        yield
    except SandboxError as error:
        raise FailedError("sandbox", error) from error
    except Exception as error:
        raise FailedError(kind, error) from error

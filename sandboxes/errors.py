"""Errors of the sandbox room. All of them are infrastructure; a command's exit code is data and never raises.

SandboxError (RuntimeError)
├── SandboxUnavailableError (OSError)    this machine cannot run the backend: says what is missing
├── ImageError                           an image or layer is absent, broken or cannot be built
│   └── RecipeError (ConfigError)        a recipe says what cannot be: names file, line and key
├── SnapshotError                        a snapshot is unknown, damaged or still in use
├── SandboxTimeoutError (TimeoutError)   the sandbox itself did not answer (not: a command ran too long)
├── SandboxLimitError                    a limit cannot be honoured, or the machine has no space left
├── SandboxDeadError                     the sandbox is closed, or its first process is gone
├── ForkBusyError                        a process holds files open for writing and background="fail"
└── SandboxFileError (OSError)           a file operation failed; ``errno`` as the kernel gave it
"""

from __future__ import annotations

from forkgym.errors import ConfigError, ForkGymError


class SandboxError(ForkGymError, RuntimeError):
    """Base of infrastructure failures of a sandbox."""


class SandboxUnavailableError(SandboxError, OSError):
    """The backend cannot run on this machine."""


class ImageError(SandboxError):
    """An image or a layer is unknown, absent or broken, or cannot be built."""


class RecipeError(ImageError, ConfigError):
    """A recipe is malformed; the message names file, line and key."""


class SnapshotError(SandboxError):
    """A snapshot is unknown, damaged or in use."""


class SandboxTimeoutError(SandboxError, TimeoutError):
    """The sandbox did not answer in time. A command over its own limit is ``ExecResult.timed_out`` instead."""


class SandboxLimitError(SandboxError):
    """A limit cannot be honoured here, or the machine is out of space."""


class SandboxDeadError(SandboxError):
    """The sandbox is closed or dead."""


class ForkBusyError(SandboxError):
    """A process in the sandbox writes to a file right now, and the caller asked not to disturb it."""


class SandboxFileError(OSError, SandboxError):  # OSError first: it is the one that keeps errno
    """A file operation inside the sandbox failed; ``errno`` tells why."""

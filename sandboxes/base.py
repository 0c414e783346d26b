"""The contract of a sandbox: an isolated machine that runs commands, holds files, and forks.

Every backend implements ``Backend`` and ``Sandbox``; ``forkgym.sandboxes.conformance`` checks that it does.
Units: seconds, bytes, and CPU cores. Infrastructure failures raise (``errors.py``); a command's exit code is data.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

StrPath = str | os.PathLike[str]
DEFAULT_TIMEOUT = 60.0
DEFAULT_MAX_OUTPUT = 1 << 20
Background = Literal["fail", "kill", "copy"]


@dataclass(frozen=True)
class Limits:
    """Ceilings for one sandbox; ``None`` means no ceiling of our own.

    Sizes are bytes; ``forkgym.sandboxes.limits.parse_limits`` reads text such as ``512M``. ``disk`` bounds what is
    written since the last fork or snapshot, ``wall`` the seconds that the sandbox lives, whatever it does.
    """

    memory: int | None = 1 << 30
    pids: int | None = 256
    cpu: float | None = None
    disk: int | None = 1 << 30
    open_files: int | None = 1024
    wall: float | None = None


@dataclass(frozen=True)
class Mount:
    """A host path shown read-only inside the sandbox."""

    source: str
    target: str


@dataclass(frozen=True)
class SandboxSpec:
    """What to create. ``user`` is the name inside that commands run as; ``workdir`` is created and owned by it."""

    image: str = "host"
    limits: Limits = field(default_factory=Limits)
    network: Literal["none"] = "none"
    user: str = "agent"
    workdir: str = "/work"
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    mounts: tuple[Mount, ...] = ()


@dataclass(frozen=True)
class ExecResult:
    """What a command did. ``exit_code`` is -N for death by signal N, as in ``subprocess``.

    ``stdout`` and ``stderr`` keep head and tail up to ``max_output`` bytes each; ``truncated`` says that bytes were
    dropped and ``total_bytes`` counts all that was written. ``timed_out``: the command and all it started were killed.
    ``oom_killed``, ``disk_full``: the sandbox was over its memory or disk limit, and processes were killed for it.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    duration: float
    timed_out: bool = False
    oom_killed: bool = False
    disk_full: bool = False
    truncated: bool = False
    total_bytes: int = 0

    @property
    def ok(self) -> bool:
        """True for exit code 0 within the time limit."""
        return self.exit_code == 0 and not self.timed_out


@dataclass(frozen=True)
class DirEntry:
    """One name in a directory; ``kind`` is file, dir, link or other."""

    name: str
    kind: Literal["file", "dir", "link", "other"]
    size: int
    mode: int


@dataclass(frozen=True)
class Snapshot:
    """An immutable state, restorable later and by another process through ``create(backend, snapshot=id)``."""

    id: str
    backend: str
    label: str = ""


@dataclass(frozen=True)
class Usage:
    """Resources used so far; a value this machine cannot measure is ``None``."""

    cpu_seconds: float | None = None
    peak_memory: int | None = None
    pids: int | None = None
    disk_bytes: int | None = None


@dataclass(frozen=True)
class Capabilities:
    """What a backend enforces on this machine. ``unenforced`` names each limit that is not held, and why.

    ``images`` are those it has; ``None`` if only a try can tell.
    """

    backend: str
    tier: str
    isolation: Literal["namespaces", "container", "weak"]
    fork: bool
    limits: Mapping[str, str]
    unenforced: Mapping[str, str]
    notes: tuple[str, ...] = ()
    images: tuple[str, ...] | None = None


class Shell(Protocol):
    """A persistent bash: working directory, exported variables, functions and aliases survive between runs."""

    name: str

    def run(
        self, command: str, *, timeout: float = DEFAULT_TIMEOUT, max_output: int = DEFAULT_MAX_OUTPUT
    ) -> ExecResult:
        """Run ``command``; ``stdout`` holds stdout and stderr interleaved, as a terminal would show them.

        The exit code comes over its own channel, so output cannot forge it. After a timeout, ``exit`` or a crash the
        shell is reopened with the last known cwd and exported variables.
        """
        ...

    @property
    def restarts(self) -> int:
        """How many times the shell had to be reopened."""
        ...


@runtime_checkable
class Sandbox(Protocol):
    """An isolated machine. A context manager; every method may be called from any thread.

    ``lineage`` holds the ids of its ancestors, oldest first.
    """

    id: str
    backend: str
    spec: SandboxSpec
    lineage: tuple[str, ...]

    def exec(
        self,
        command: str | Sequence[str],
        *,
        timeout: float = DEFAULT_TIMEOUT,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        user: str | None = None,
        max_output: int | None = DEFAULT_MAX_OUTPUT,
    ) -> ExecResult:
        """Run one command (text goes to ``bash -c``, a sequence is executed as it is) and wait for it.

        Returns when the command itself has ended, even if a background child keeps its output open.
        ``max_output=None`` keeps every byte. ``user`` is ``None`` (the sandbox's user); other users are refused
        where the backend cannot switch.
        """
        ...

    def shell(self, name: str = "main") -> Shell:
        """The persistent shell of this name, started on first use."""
        ...

    def read_file(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """The bytes of a regular file, resolved inside the sandbox. Raises ``SandboxFileError``."""
        ...

    def write_file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Write a file as the sandbox's user, making parent directories. Raises ``SandboxFileError``."""
        ...

    def list_dir(self, path: str) -> list[DirEntry]:
        """The entries of a directory, sorted by name. Raises ``SandboxFileError``."""
        ...

    def upload(self, local: StrPath, path: str) -> None:
        """Copy a file or a directory tree from the host into the sandbox, owned by the sandbox's user."""
        ...

    def download(self, path: str, local: StrPath) -> None:
        """Copy a regular file or a directory tree out of the sandbox; links and devices are not followed."""
        ...

    def snapshot(self, label: str = "") -> Snapshot:
        """Freeze the current file system and shell states as an immutable snapshot."""
        ...

    def fork(self, n: int = 1, *, background: Background = "copy") -> list[Sandbox]:
        """``n`` isolated siblings of the current state, copy-on-write; this sandbox goes on.

        Copies files and each shell's cwd, exported variables and functions. Does not copy running processes,
        ``/dev/shm`` or sockets. ``background`` says what to do while a process writes to an open file.
        """
        ...

    def usage(self) -> Usage:
        """Resources used so far. Raises ``SandboxDeadError`` once it is closed."""
        ...

    @property
    def alive(self) -> bool:
        """False once closed or once its first process is gone."""
        ...

    def close(self) -> None:
        """Kill everything inside and remove it. Idempotent; nothing is left behind."""
        ...

    def __enter__(self) -> Sandbox: ...

    def __exit__(self, *_: object) -> None: ...


class Backend(Protocol):
    """Creates sandboxes of one kind."""

    name: str

    def create(self, spec: SandboxSpec, snapshot: str | None = None) -> Sandbox:
        """A fresh sandbox, or one restored from the snapshot with this id. Raises ``SandboxError``."""
        ...

    def capabilities(self) -> Capabilities:
        """What works here. Raises ``SandboxUnavailableError`` if nothing does."""
        ...

    def snapshots(self) -> list[Snapshot]:
        """All restorable snapshots."""
        ...

    def delete_snapshot(self, snapshot_id: str) -> None:
        """Forget a snapshot; its bytes go when no sandbox uses them. Raises ``SnapshotError``."""
        ...

    def gc(self) -> Mapping[str, int]:
        """Remove what dead owners left behind; counts by kind."""
        ...

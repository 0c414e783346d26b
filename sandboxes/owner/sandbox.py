"""What sandboxes of every backend have in common: commands, shells and files through their first process.

A backend's class adds how a sandbox starts, is frozen, and ends.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from forkgym.errors import ConfigError
from forkgym.sandboxes.base import (
    DEFAULT_MAX_OUTPUT,
    DEFAULT_TIMEOUT,
    DirEntry,
    ExecResult,
    SandboxSpec,
    StrPath,
)
from forkgym.sandboxes.errors import SandboxDeadError
from forkgym.sandboxes.owner import checks, commands
from forkgym.sandboxes.owner.environment import environment, user_ids
from forkgym.sandboxes.owner.files import Files
from forkgym.sandboxes.owner.reply import Reply, ask
from forkgym.sandboxes.owner.shell import PersistentShell, ShellState


class ServedSandbox(ABC):
    """A sandbox whose first process runs ``guest.server``; see ``forkgym.sandboxes.base.Sandbox``."""

    backend: str
    shell_place: str = "/dev"
    distant: bool = False
    _socket: socket.socket  # to the first process

    def __init__(self, id: str, spec: SandboxSpec, lineage: tuple[str, ...], shells: Mapping[str, ShellState]) -> None:
        checks.check_spec(spec)
        user_ids(spec.user)
        self.id = id
        self.spec = spec
        self.lineage = lineage
        self.owner: tuple[int, int] | None = None
        self._counter = itertools.count()
        self._shells: dict[str, PersistentShell] = {}
        self._saved_shells = dict(shells)
        self._lock = threading.Lock()
        self._closing = threading.Lock()
        self._closed = True  # until there is something to close
        self._foreign = False
        self._files = Files(self, spec.workdir, spec.limits.disk, self._disk_used)

    def __repr__(self) -> str:
        return f"<{self.backend} sandbox {self.id} of {self.spec.image}{', closed' if self._closed else ''}>"

    # Commands

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
        """See ``Sandbox.exec``."""
        checks.check_command(command)
        checks.check_timeout(timeout)
        checks.check_directory(cwd)
        checks.check_env(env)
        checks.check_bytes("stdin", stdin)
        checks.check_count("max_output", max_output)
        self._require_alive()
        name = str(next(self._counter))
        if user in (None, self.spec.user):
            start, kill = self.request, self._killer(name)
        elif user == "root":
            start, kill = self._as_root(name)
        else:
            raise ConfigError(f"user is {user!r}; commands run as {self.spec.user!r} or 'root' here")
        result = commands.run(
            self,
            name,
            command,
            start=start,
            kill=kill,
            timeout=timeout,
            message={
                "env": {**environment(self.spec, user), **(env or {})},
                "cwd": os.path.join(self.spec.workdir, cwd or ""),
            },
            stdin=stdin,
            max_output=max_output,
        )
        return self._judge(result)

    def shell(self, name: str = "main") -> PersistentShell:
        """See ``Sandbox.shell``."""
        with self._lock:
            if name not in self._shells:
                start = self._saved_shells.get(name, ShellState(self.spec.workdir))
                self._shells[name] = PersistentShell(self, name, start, environment(self.spec), self._judge)
            return self._shells[name]

    # Files

    def read_file(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """See ``Sandbox.read_file``."""
        return self._files.read(path, max_bytes)

    def write_file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """See ``Sandbox.write_file``."""
        self._files.write(path, data, mode)

    def list_dir(self, path: str) -> list[DirEntry]:
        """See ``Sandbox.list_dir``."""
        return self._files.list(path)

    def upload(self, local: StrPath, path: str) -> None:
        """See ``Sandbox.upload``."""
        self._files.upload(local, path)

    def download(self, path: str, local: StrPath) -> None:
        """See ``Sandbox.download``."""
        self._files.download(path, local)

    # Life

    def close(self) -> None:
        """See ``Sandbox.close``. The processes are gone on return; the bytes go in the background."""
        with self._closing:
            if self._closed or self._foreign:
                return
            self._closed = True
            self._kill_box()
            for shell in self._shells.values():
                shell.close()
            self._discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and not self._foreign:
            with contextlib.suppress(Exception):
                self.close()

    def forget(self) -> None:
        """In a forked child of the owner: let go without touching the sandbox."""
        self._foreign = True
        self._socket.close()

    # For the parts

    def request(self, message: Mapping[str, object], fds: Sequence[int] = ()) -> Reply:
        """Send a request to the first process."""
        self._require_alive()
        return Reply(self._socket, message, fds, self._death)

    def ask(self, message: Mapping[str, object], fds: Sequence[int] = ()) -> tuple[dict[str, Any], list[int]]:
        """Send a request to the first process and wait for the answer."""
        self._require_alive()
        return ask(self._socket, message, fds, dead=self._death)

    def refill(self, name: str, file: int) -> None:
        """Tell that ``file``, the last descriptor that command ``name`` was given, has new content."""
        if self.distant:
            self.ask({"op": "refill", "id": name}, [file])

    def _require_alive(self) -> None:
        if self._closed:
            raise SandboxDeadError(f"sandbox {self.id} is closed")
        if self._foreign:
            raise SandboxDeadError(f"sandbox {self.id} belongs to the process that created it")

    def _killer(self, name: str) -> Callable[[], None]:
        def kill() -> None:
            self.ask({"op": "kill", "id": name, "since": None})

        return kill

    def _shell_states(self) -> dict[str, ShellState]:
        """The last known state of every shell."""
        with self._lock:
            shells = dict(self._shells)
        return {**self._saved_shells, **{name: shell.state for name, shell in shells.items()}}

    def _disk_used(self) -> int | None:
        """Bytes that count towards the limit ``disk``; ``None`` where they are not told."""
        return None

    def _judge(self, result: ExecResult) -> ExecResult:
        """A command's result, with what only the backend knows."""
        return result

    def _death(self, message: str) -> SandboxDeadError:
        """The error for a first process that is gone, with the reason that only the backend may know."""
        return SandboxDeadError(message)

    @abstractmethod
    def _as_root(self, name: str) -> tuple[Callable[[dict[str, Any], list[int]], Reply], Callable[[], None]]:
        """How to start a command as root, and how to kill it."""

    @abstractmethod
    def _kill_box(self) -> None:
        """Kill the first process, and with it all others, and wait until they are gone."""

    @abstractmethod
    def _discard(self) -> None:
        """Give up what the sandbox occupied; may go on in the background."""

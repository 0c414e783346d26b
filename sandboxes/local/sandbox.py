"""One sandbox of the local backend, as its owner sees it."""

from __future__ import annotations

import atexit
import contextlib
import errno
import itertools
import os
import select
import signal
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any, TypeVar

from forkgym.errors import ConfigError
from forkgym.sandboxes.base import (
    DEFAULT_MAX_OUTPUT,
    DEFAULT_TIMEOUT,
    Background,
    DirEntry,
    ExecResult,
    SandboxSpec,
    Snapshot,
    StrPath,
    Usage,
)
from forkgym.sandboxes.errors import (
    SandboxDeadError,
    SandboxError,
    SandboxLimitError,
    SandboxUnavailableError,
)
from forkgym.sandboxes.limits import rlimits
from forkgym.sandboxes.local import cleanup, commands, image, launcher, processes, snapshots, wire
from forkgym.sandboxes.local.cgroups import Group
from forkgym.sandboxes.local.disk import Disk, new_id
from forkgym.sandboxes.local.environment import environment, user_ids
from forkgym.sandboxes.local.files import Files
from forkgym.sandboxes.local.freezing import Freezer
from forkgym.sandboxes.local.shell import LocalShell, ShellState
from forkgym.sandboxes.local.snapshots import Frozen

BACKEND = "local"
_T = TypeVar("_T")
_DEATH_PATIENCE_MS = 10_000


class LocalSandbox:
    """See ``forkgym.sandboxes.base.Sandbox``. Made in two steps, so that several can start at the same time."""

    backend = BACKEND

    def __init__(self, spec: SandboxSpec, origin: Frozen) -> None:
        """Begin to start; ``finish`` waits until it runs."""
        self.id = new_id()
        self.spec = spec
        self.lineage = origin.lineage
        self._zygote = launcher.zygote()
        self._root = self._zygote.root
        self._counter = itertools.count()
        self._shells: dict[str, LocalShell] = {}
        self._saved_shells = dict(origin.shells)
        self._lock = threading.Lock()
        self._state_lock = threading.Lock()
        self._closing = threading.Lock()
        self._closed = True  # until there is something to close
        self._foreign = False
        self._oom_kills = 0
        self._group: Group | None = None
        self._pid, self._pidfd = 0, -1
        self.owner: tuple[int, int] | None = None
        self._files = Files(self, spec.workdir)
        user_ids(spec.user)
        try:
            self._disk = Disk(self._root, self.id, image.load(spec.image, self._root), spec, origin.layers)
        except OSError as error:
            raise _explained(error, self._zygote.privileged) from error
        self._socket, theirs = wire.pair()
        try:
            self._group = Group.create(self.id, spec.limits)
            request = {"op": "create", **self._disk.message(), **self._message(), "fresh": not origin.layers}
            self._starting = launcher.Reply(self._zygote.socket, request, [theirs.fileno()])
            self._closed = False
        except BaseException as error:
            self._discard()
            raise _explained(error, self._zygote.privileged) from error.__cause__
        finally:
            theirs.close()
        launcher.owned.add(self)

    def finish(self) -> LocalSandbox:
        """Wait until it runs. On failure nothing is left. Raises ``SandboxError``."""
        try:
            message, fds = self._starting.next()
            self._pid, self._pidfd = message["pid"], fds[0]
            if message["base"] is not None:
                uid, gid = user_ids(self.spec.user)
                self.owner = (message["base"] + uid, message["base"] + gid)
            self._starting.next()
        except BaseException as error:
            self.close()
            raise _explained(error, self._zygote.privileged) from error.__cause__
        finally:
            self._starting.close()
        return self

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
        commands.check_timeout(timeout)
        self._require_alive()
        name = str(next(self._counter))
        as_root = user == "root" and self.spec.user != "root"
        if not as_root and user not in (None, self.spec.user):
            raise SandboxError(f"commands run as {self.spec.user!r} or 'root' here, not as {user!r}")
        begin = processes.now()
        result = commands.run(
            self,
            name,
            command,
            start=self._request_as_root if as_root else self.request,
            kill=lambda: self._sweep(begin) if as_root else self._kill(name),
            timeout=timeout,
            message={
                "env": {**environment(self.spec, user), **(env or {})},
                "cwd": os.path.join(self.spec.workdir, cwd or ""),
            },
            stdin=stdin,
            max_output=max_output,
        )
        return self._with_oom(result)

    def shell(self, name: str = "main") -> LocalShell:
        """See ``Sandbox.shell``."""
        with self._lock:
            if name not in self._shells:
                start = self._saved_shells.get(name, ShellState(self.spec.workdir))
                self._shells[name] = LocalShell(self, name, start, environment(self.spec), self._with_oom)
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

    # States

    def snapshot(self, label: str = "") -> Snapshot:
        """See ``Sandbox.snapshot``."""
        with self._frozen("copy") as frozen:
            return snapshots.save(self._root, frozen, label)

    def fork(self, n: int = 1, *, background: Background = "copy") -> list[LocalSandbox]:
        """See ``Sandbox.fork``."""
        if n < 1:
            raise ConfigError(f"fork({n}): ask for at least one child")
        with self._frozen(background) as frozen:
            return start_all(self.spec, frozen, n)

    @contextlib.contextmanager
    def _frozen(self, background: Background) -> Generator[Frozen]:
        """The present state, kept on disk at least until the end of the block."""
        self._require_alive()
        with self._lock:
            shells = dict(self._shells)
        with self._state_lock:
            freezer = Freezer(self, self._zygote, self._disk, self._pid, self._pidfd)
            try:
                chain = _shielded(lambda: freezer.freeze(shells, background))
            except OSError as error:
                raise self._not_frozen(error) from error
            states = {**self._saved_shells, **{name: shell.state for name, shell in shells.items()}}
            try:
                yield Frozen(chain, states, (*self.lineage, self.id), self.spec.image)
            finally:
                if not self._closed:
                    self._disk.settle()
                    self._disk.merge_if_long(self._zygote)

    def _not_frozen(self, error: OSError) -> BaseException:
        if isinstance(error, SandboxError):
            return error
        if self._closed:
            return SandboxDeadError(f"sandbox {self.id} was closed meanwhile")
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return SandboxLimitError(f"no space left in {self._root} for the state of sandbox {self.id}: {error}")
        return SandboxError(f"the state of sandbox {self.id} could not be frozen: {error}")

    def usage(self) -> Usage:
        """See ``Sandbox.usage``."""
        held = self._group.usage() if self._group is not None else Usage()
        return replace(held, disk_bytes=self._disk.used())

    # Life

    @property
    def alive(self) -> bool:
        """See ``Sandbox.alive``."""
        if self._closed or self._foreign or self._pidfd < 0:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return not poll.poll(0)

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

    def __enter__(self) -> LocalSandbox:
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

    def request(self, message: Mapping[str, object], fds: Sequence[int] = ()) -> launcher.Reply:
        """Send a request to the first process."""
        self._require_alive()
        return launcher.Reply(self._socket, message, fds)

    def ask(self, message: Mapping[str, object], fds: Sequence[int] = ()) -> tuple[dict[str, Any], list[int]]:
        """Send a request to the first process and wait for the answer."""
        self._require_alive()
        return launcher.ask(self._socket, message, fds)

    def _message(self) -> dict[str, Any]:
        uid, gid = user_ids(self.spec.user)
        held = self._group is not None and "memory" in self._group.controllers
        return {
            "uid": uid,
            "gid": gid,
            "workdir": self.spec.workdir,
            "hostname": "sandbox",
            "rlimits": rlimits(self.spec.limits, cgroups=held),
            "join": self._group.join_files if self._group is not None else [],
        }

    def _kill_box(self) -> None:
        """Kill the first process, and with it all others, and wait until they are gone."""
        self._socket.close()
        if self._pidfd < 0:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        poll.poll(_DEATH_PATIENCE_MS)
        os.close(self._pidfd)
        self._pidfd = -1

    def _discard(self) -> None:
        """Give up the group and, in the background, the directories."""
        self._socket.close()
        if self._group is not None:
            cleanup.later(self._group.close)
        cleanup.later(self._disk.release)

    def _require_alive(self) -> None:
        if self._closed:
            raise SandboxDeadError(f"sandbox {self.id} is closed")
        if self._foreign:
            raise SandboxDeadError(f"sandbox {self.id} belongs to the process that created it")

    def _request_as_root(self, message: Mapping[str, object], fds: Sequence[int] = ()) -> launcher.Reply:
        join = self._group.join_files if self._group is not None else []
        request = {**message, "op": "spawn", "join": join, "rlimits": self._message()["rlimits"]}
        return launcher.Reply(self._zygote.socket, request, [self._pidfd, *fds])

    def _sweep(self, since: float) -> None:
        keep = self.ask({"op": "commands"})[0]["pids"]
        launcher.ask(self._zygote.socket, {"op": "sweep", "since": since, "keep": keep}, [self._pidfd])

    def _kill(self, name: str) -> None:
        self.ask({"op": "kill", "id": name, "since": None})

    def _with_oom(self, result: ExecResult) -> ExecResult:
        if self._group is None:
            return result
        kills, before = self._group.oom_kills(), self._oom_kills
        self._oom_kills = kills
        return replace(result, oom_killed=True) if kills > before else result


def start_all(spec: SandboxSpec, origin: Frozen, count: int) -> list[LocalSandbox]:
    """``count`` sandboxes of one state, started side by side; all of them or, on failure, none."""
    boxes: list[LocalSandbox] = []
    try:
        for _ in range(count):
            boxes.append(LocalSandbox(spec, origin))
        return [box.finish() for box in boxes]
    except BaseException:
        for box in boxes:
            box.close()
        raise


def _shielded(action: Callable[[], _T]) -> _T:
    """Do something that must not stop half-way: Ctrl-C is raised after it."""
    if threading.current_thread() is not threading.main_thread():
        return action()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(action)
        try:
            return future.result()
        except KeyboardInterrupt:
            wait([future])
            raise


@atexit.register
def _close_all() -> None:
    for box in list(launcher.owned):
        box.close()
    launcher.stop()


def _explained(error: BaseException, privileged: bool) -> BaseException:
    """A failure to start, in the terms of this room."""
    if isinstance(error, SandboxError) or not isinstance(error, OSError):
        return error
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN):
        hint = " (see ulimit -n)" if error.errno == errno.EMFILE else ""
        return SandboxLimitError(f"the machine cannot hold another sandbox: {error}{hint}")
    if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EINVAL, errno.ENODEV):
        reason = error.strerror or str(error)
        return SandboxUnavailableError(f"the local sandbox cannot start: {reason}. {launcher.advice(privileged)}")
    return SandboxError(f"the sandbox did not start: {error}")

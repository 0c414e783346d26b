"""One sandbox of the local backend, as its owner sees it."""

from __future__ import annotations

import contextlib
import errno
import select
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from forkgym.sandboxes.base import ExecResult, SandboxSpec, Usage
from forkgym.sandboxes.errors import (
    SandboxDeadError,
    SandboxError,
    SandboxLimitError,
    SandboxUnavailableError,
)
from forkgym.sandboxes.guest import processes, wire
from forkgym.sandboxes.limits import rlimits
from forkgym.sandboxes.local import cleanup, image, launcher
from forkgym.sandboxes.local.cgroups import Group
from forkgym.sandboxes.local.disk import Disk, new_id
from forkgym.sandboxes.local.layered import LayeredSandbox
from forkgym.sandboxes.local.snapshots import Frozen
from forkgym.sandboxes.owner.environment import user_ids
from forkgym.sandboxes.owner.oom import Kills
from forkgym.sandboxes.owner.reply import Reply, ask

BACKEND = "local"
_T = TypeVar("_T")


class LocalSandbox(LayeredSandbox):
    """See ``forkgym.sandboxes.base.Sandbox``. Made in two steps, so that several can start at the same time."""

    backend = BACKEND

    def __init__(self, spec: SandboxSpec, origin: Frozen) -> None:
        """Begin to start; ``finish`` waits until it runs."""
        self._zygote = launcher.zygote()
        self._root = self._zygote.root
        files = image.load(spec.image, self._root)
        spec = replace(spec, image=files.ref)  # forks and snapshots stand on this very image
        super().__init__(new_id(), spec, origin.lineage, origin.shells)
        self._kills = Kills()
        self._group: Group | None = None
        self._pid, self._pidfd = 0, -1
        try:
            self._disk = Disk(self._root, self.id, files, spec, origin.layers)
        except OSError as error:
            raise _explained(error, self._zygote.privileged) from error
        self._socket, theirs = wire.pair()
        try:
            self._group = Group.create(self.id, spec.limits)
            request = {"op": "create", **self._disk.message(), **self._message(), "fresh": not origin.layers}
            self._starting = Reply(self._zygote.socket, request, [theirs.fileno()])
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

    # States

    def _siblings(self, frozen: Frozen, count: int) -> list[LocalSandbox]:
        return start_all(self.spec, frozen, count)

    def usage(self) -> Usage:
        """See ``Sandbox.usage``."""
        self._require_alive()
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
        poll.register(self._socket, 0)  # its end closes a moment before
        return not poll.poll(0)

    # For the parts

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
            "leave": self._group.leave_files if self._group is not None else [],
            "disk": self.spec.limits.disk,
            "wall": self.spec.limits.wall,
        }

    def _kill_box(self) -> None:
        """Kill the first process, and with it all others, and wait until they are gone."""
        self._socket.close()
        if self._pidfd < 0:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        processes.await_end(self._pidfd)
        self._pidfd = -1

    def _discard(self) -> None:
        """Give up the group and, in the background, the directories."""
        self._socket.close()
        if self._group is not None:
            cleanup.later(self._group.close)
        cleanup.later(self._disk.release)

    def _as_root(self, name: str) -> tuple[Callable[[dict[str, Any], list[int]], Reply], Callable[[], None]]:
        begin = processes.now()

        def start(message: dict[str, Any], fds: list[int]) -> Reply:
            if not self.alive:
                raise self._death("the sandbox is gone")
            join = self._group.join_files if self._group is not None else []
            request = {**message, "op": "spawn", "join": join, "rlimits": self._message()["rlimits"]}
            return Reply(self._zygote.socket, request, [self._pidfd, *fds], self._death)

        def kill() -> None:
            keep = self.ask({"op": "commands"})[0]["pids"]
            ask(self._zygote.socket, {"op": "sweep", "since": begin, "keep": keep}, [self._pidfd])

        return start, kill

    def _judge(self, result: ExecResult) -> ExecResult:
        result = super()._judge(result)
        if self._group is None:
            return result
        end = processes.now()
        if not self._kills.during(end - result.duration, end, self._group.oom_kills()):
            return result
        self._group.make_room()
        return replace(result, oom_killed=True)

    def _death(self, message: str) -> SandboxDeadError:
        if self._group is not None and self._group.oom_kills() > self._kills.seen:
            # Where the first process cannot stay outside the group: control groups of version 2.
            limit = f"memory={self.spec.limits.memory}"
            message = f"sandbox {self.id} was ended: it ran out of memory, its limit is {limit} bytes"
        return super()._death(message)


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

"""The zygote: a bare, single-threaded process that sandboxes are cloned from, to inherit nothing of a trainer.

It holds the privileges that the sandboxes' first processes give up: it builds overlays, maps ids, exchanges the root
of a running sandbox, merges layers, and starts commands as root inside. It dies with its client.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from forkgym.sandboxes.guest import processes, server, syscalls, wire
from forkgym.sandboxes.local import containers, init, mounts, seccomp, warden
from forkgym.sandboxes.local.squash import squash

_NAMESPACES = (
    syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWUTS
)
# Each sandbox has its own ids, so that limits the kernel counts by user do not couple them. The region lies above
# those that distributions and login services hand out.
_COPY = "/bin/cp"
_FIRST_BASE, _RANGE, _RANGES = 0x40000000, 65536, 0x3000


class Zygote:
    """Serves one request at a time; whatever takes long runs in a forked child, which answers by itself."""

    def __init__(self, requests: socket.socket, privileged: bool, devices: str) -> None:
        self._requests = requests
        self._devices = devices
        self._privileged = privileged
        self._seccomp = seccomp.program()
        self._warden = warden.start(requests, self._stop)
        self._next_range = int.from_bytes(os.urandom(2)) % _RANGES  # so that two trainers rarely share one

    def serve(self) -> None:
        """Answer until the client is gone."""
        while (received := wire.receive(self._requests)) is not None:
            message, fds = received
            reply = socket.socket(fileno=fds.pop(0))
            try:
                getattr(self, "_do_" + message["op"])(message, fds, reply)
            except Exception as error:
                self._report(reply, error)
            finally:
                wire.close_all(fds)
                reply.close()

    def _do_create(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        spec = init.BoxSpec.from_message(message, nested=not self._privileged)
        go, started = wire.pair()
        groups, outside = _open_groups(message["join"], fds), _open_groups(message["leave"], fds)
        flags = _NAMESPACES | (syscalls.CLONE_NEWUSER if self._privileged else 0)
        pid = syscalls.clone_process(flags)
        if pid == 0:
            self._become_box(spec, started, socket.socket(fileno=fds[0]), reply, groups, outside)
        started.close()
        pidfd = -1
        try:
            pidfd = os.pidfd_open(pid)
            ids = self._map_ids(pid)
            try:
                built = mounts.build(spec.root, ids, self._devices)
            finally:
                if ids.userns >= 0:
                    os.close(ids.userns)
            wire.send(reply, {"pid": pid, "base": ids.base}, [pidfd])
            place = os.path.dirname(spec.root.layers[0])
            warden.watch(self._warden, pidfd, place, message["disk"], message["wall"])
            wire.send(go, {}, built)
            wire.close_all(built)
        finally:
            go.close()  # without the mounts, this tells the child to end
            if pidfd >= 0:
                os.close(pidfd)

    def _become_box(
        self,
        spec: init.BoxSpec,
        started: socket.socket,
        own: socket.socket,
        reply: socket.socket,
        groups: list[int],
        outside: list[int],
    ) -> NoReturn:
        """Whatever fails here is reported and ends the child: if it went on, it would be a second zygote."""
        try:
            _join_groups(groups)
            syscalls.close_others([started.fileno(), own.fileno(), reply.fileno(), *outside])
            received = wire.receive(started)
            started.close()
            if received is not None:
                if self._privileged:
                    _become_root()
                syscalls.set_name("init")
                leave = partial(_join_groups, outside) if outside else None
                init.run(own, reply, spec, received[1], self._seccomp, leave)
        except BaseException as error:
            self._report(reply, error)
        finally:
            os._exit(1)

    def _map_ids(self, pid: int) -> mounts.Ids:
        if not self._privileged:
            return mounts.Ids()
        base = _FIRST_BASE + self._next_range * _RANGE
        self._next_range = (self._next_range + 1) % _RANGES
        for name in ("uid_map", "gid_map"):
            _write(f"/proc/{pid}/{name}", f"0 {base} {_RANGE}")
        return mounts.Ids(base, os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC))

    def _do_freeze(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        self._inside(fds[0], reply, mounts.freeze)

    def _do_thaw(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        self._inside(fds[0], reply, mounts.thaw)

    def _do_switch(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        """Freeze, and on success give the sandbox a new upper layer."""
        spec = mounts.RootSpec.from_message(message)
        ids = self._ids_of(message["pid"])
        try:
            built = mounts.build(spec, ids, self._devices)
        finally:
            if ids.userns >= 0:
                os.close(ids.userns)

        def exchange() -> None:
            mounts.freeze()
            try:
                mounts.replace(spec, built)
            except BaseException:
                mounts.thaw()
                raise

        try:
            self._inside(fds[0], reply, exchange)
        finally:
            wire.close_all(built)

    def _do_root(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        """Hand out a detached copy of a container's root, to be the lowest layer of its overlay."""

        def clone() -> None:
            wire.send(reply, {"ok": True}, [syscalls.open_tree("/", clone=True)])

        self._inside(fds[0], reply, clone)

    def _do_adopt(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        """Give a container that nobody has used yet the root of a sandbox."""
        spec = mounts.RootSpec.from_message(message)
        built = mounts.build(spec, self._ids_of(message["pid"]), self._devices)

        def furnish() -> None:
            mounts.replace(spec, built)
            containers.furnish(message["directories"], message["uid"], message["gid"], message["fresh"])

        try:
            self._inside(fds[0], reply, furnish)
        finally:
            wire.close_all(built)
        warden.watch(self._warden, fds[0], os.path.dirname(spec.layers[0]), message["disk"], message["wall"])

    def _do_copy(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        def copy() -> None:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for volume in mounts.VOLUMES:
                source, target = (os.path.join(message[name], volume) for name in ("source", "target"))
                said = wire.memory_file(b"")
                actions = [(os.POSIX_SPAWN_DUP2, said, 2)]
                pid = os.posix_spawn(_COPY, ["cp", "-a", "--", source + "/.", target], {}, file_actions=actions)
                if os.waitpid(pid, 0)[1]:
                    tail = os.pread(said, 200, max(0, os.fstat(said).st_size - 200))
                    reason = tail.decode(errors="replace").strip().rpartition(": ")[2]
                    number = errno.ENOSPC if reason == os.strerror(errno.ENOSPC) else errno.EIO
                    raise OSError(number, f"the writable layer could not be copied: {reason}")
                os.close(said)

        self._aside(reply, copy)

    def _do_squash(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        self._aside(reply, lambda: squash(message["layers"], message["image"], message["target"], self._privileged))

    def _do_spawn(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        """Run a command as root inside. Descriptors: the sandbox's pidfd, stdout, stderr, then stdin if ``stdin``."""
        groups = _open_groups(message["join"], fds)
        pidfd, out, err, *standard_in = fds[: 3 + message["stdin"]]

        def run() -> None:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            devnull = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
            extra = dict(zip(message["extra"], fds[3 + message["stdin"] :], strict=False))
            sources = {0: standard_in[0] if standard_in else devnull, 1: out, 2: err, **extra}
            init.limit(0, 0, message["rlimits"], self._seccomp)
            # The process that waits stays outside the group, where it cannot be killed for memory.
            join = partial(_join_groups, groups)
            pid = server.spawn_after(join, message["argv"], message["env"], message["cwd"], sources)
            status = os.waitpid(pid, 0)[1]
            wire.send(reply, {"code": os.waitstatus_to_exitcode(status)})

        self._inside(pidfd, reply, run, _NAMESPACES | syscalls.CLONE_NEWCGROUP)

    def _do_sweep(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        """Kill as root, which the first process is not: everything since ``since`` and not below ``keep``."""

        def sweep() -> None:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            child = os.fork()
            if child == 0:
                try:
                    own = int(os.readlink("/proc/self"))
                    processes.eliminate(message["since"], [*message["keep"], own], _nothing)
                finally:
                    os._exit(0)
            os.waitpid(child, 0)

        self._inside(fds[0], reply, sweep, syscalls.CLONE_NEWPID)

    def _stop(self, pidfd: int) -> None:
        """Kill what runs in a sandbox now, but for its first process, and wait until that is gone."""

        def kill() -> None:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            child = os.fork()
            if child == 0:
                try:
                    processes.eliminate_now()
                finally:
                    os._exit(0)
            os.waitpid(child, 0)

        done, reply = wire.pair()
        self._inside(pidfd, reply, kill, syscalls.CLONE_NEWPID)
        reply.close()
        wire.receive(done)
        done.close()

    def _ids_of(self, pid: int) -> mounts.Ids:
        if not self._privileged:
            return mounts.Ids()
        if _shares_ids(pid):
            return mounts.Ids(0)
        with open(f"/proc/{pid}/uid_map") as file:
            base = int(file.read().split()[1])
        return mounts.Ids(base, os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC))

    def _inside(self, pidfd: int, reply: socket.socket, action: Callable[[], None], more: int = 0) -> None:
        """Run ``action`` in a child that entered the sandbox's user, mount and ``more`` namespaces, as root there.

        All at once: what the child may do to the sandbox's first process changes on the way.
        """

        def enter() -> None:
            own = syscalls.CLONE_NEWUSER if self._privileged and not _shares_ids(_pid_of(pidfd)) else 0
            syscalls.setns(pidfd, own | syscalls.CLONE_NEWNS | more)
            if self._privileged:
                _become_root()
            action()

        self._aside(reply, enter)

    def _aside(self, reply: socket.socket, action: Callable[[], None]) -> None:
        if os.fork():
            return
        try:
            self._requests.close()
            action()
            wire.send(reply, {"ok": True})
        except BaseException as error:
            self._report(reply, error)
        finally:
            os._exit(0)

    @staticmethod
    def _report(reply: socket.socket, error: BaseException) -> None:
        try:
            wire.send(reply, wire.error(error))
        except OSError:
            return


def _nothing() -> None:
    """There are no children to reap."""


def _open_groups(paths: list[str], opened: list[int]) -> list[int]:
    """Open the files by which a process joins its control groups; they are judged by who opened them."""
    first = len(opened)
    for path in paths:
        # A thread that moves itself through `tasks` (version 1) spares the kernel a wait of some milliseconds.
        tasks = path.removesuffix("cgroup.procs") + "tasks"
        opened.append(os.open(tasks if os.path.exists(tasks) else path, os.O_WRONLY | os.O_CLOEXEC))
    return opened[first:]


def _join_groups(files: list[int]) -> None:
    for fd in files:
        os.write(fd, b"0")


def _pid_of(pidfd: int) -> int:
    with open(f"/proc/self/fdinfo/{pidfd}") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pid:"))


def _shares_ids(pid: int) -> bool:
    """True for a container: it has namespaces of its own, but the host's users."""
    return os.stat(f"/proc/{pid}/ns/user").st_ino == os.stat("/proc/self/ns/user").st_ino


def _become_root() -> None:
    """Take id 0 of the namespace just entered."""
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)

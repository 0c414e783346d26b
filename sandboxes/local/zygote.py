"""The zygote: a bare, single-threaded process that sandboxes are cloned from, to inherit nothing of a trainer.

It holds the privileges that the sandboxes' first processes give up: it builds overlays, maps ids, exchanges the root
of a running sandbox, merges layers, and starts commands as root inside. It dies with its client.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from forkgym.sandboxes.guest import processes, server, syscalls, wire
from forkgym.sandboxes.local import containers, init, mounts, seccomp, warden
from forkgym.sandboxes.local.squash import squash
from forkgym.sandboxes.local.stock import NAMESPACES, Stock

_COPY = "/bin/cp"


class Zygote:
    """Serves one request at a time. It makes sandboxes itself; all else a helper does, a child that ends with it."""

    def __init__(self, requests: socket.socket, privileged: bool, devices: str) -> None:
        self._requests = requests
        self._devices = devices
        self._privileged = privileged
        self._seccomp = seccomp.program()
        self._boxes = Stock(NAMESPACES | (syscalls.CLONE_NEWUSER if privileged else 0), self._become_box)
        self._helpers = Stock(0, self._help)
        self._warden = warden.start(requests, self._stop)

    def serve(self) -> None:
        """Answer until the client is gone."""
        while (received := self._next_request()) is not None:
            message, fds = received
            reply = socket.socket(fileno=fds.pop(0))
            try:
                if message["op"] == "create":
                    self._create(message, fds, reply)
                else:
                    self._hand_over(message, fds, reply)
            except Exception as error:
                self._report(reply, error)
            finally:
                wire.close_all(fds)
                reply.close()

    def _next_request(self) -> tuple[dict[str, Any], list[int]] | None:
        """The next request; as long as there is none, get ready for it."""
        poll = select.poll()
        poll.register(self._requests, select.POLLIN)
        try:
            for stock in (self._helpers, self._boxes):
                while stock.short and not poll.poll(0):
                    stock.add()
        except OSError:
            pass  # too many processes or files at this moment: then each is made when it is needed
        return wire.receive(self._requests)

    def _create(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        spec = mounts.RootSpec.from_message(message)
        groups, outside = _open_groups(message["join"], fds), _open_groups(message["leave"], fds)
        blank = self._boxes.take()
        try:
            built = mounts.build(spec, blank.ids, self._devices)
            try:
                wire.send(reply, {"pid": blank.pid, "base": blank.ids.base}, [blank.pidfd])
                place = os.path.dirname(spec.layers[0])
                warden.watch(self._warden, blank.pidfd, place, message["disk"], message["wall"])
                order = {**message, "join": len(groups), "leave": len(outside)}
                wire.send(blank.orders, order, [fds[0], reply.fileno(), *groups, *outside, *built])
            finally:
                wire.close_all(built)
        finally:
            blank.close()  # without an order it ends

    def _become_box(self, orders: socket.socket) -> None:
        """What a blank runs. It must not return: it would be a second zygote."""
        syscalls.close_others([orders.fileno()])
        syscalls.set_name("init")
        init.prepare()
        received = wire.receive(orders)
        orders.close()
        if received is None:
            return
        message, (own, answers, *fds) = received
        reply = socket.socket(fileno=answers)
        try:
            spec = init.BoxSpec.from_message(message, nested=not self._privileged)
            groups, fds = fds[: message["join"]], fds[message["join"] :]
            outside, built = fds[: message["leave"]], fds[message["leave"] :]
            _join_groups(groups)
            wire.close_all(groups)
            if self._privileged:
                _become_root()
            leave = partial(_join_groups, outside) if outside else None
            init.run(socket.socket(fileno=own), reply, spec, built, self._seccomp, leave)
        except BaseException as error:
            self._report(reply, error)

    def _hand_over(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        helper = self._helpers.take()
        try:
            wire.send(helper.orders, message, [reply.fileno(), *fds])
        finally:
            helper.close()

    def _help(self, orders: socket.socket) -> None:
        """What a helper runs. It must not return: it would be a second zygote."""
        syscalls.close_others([orders.fileno(), self._warden.fileno()])
        received = wire.receive(orders)
        orders.close()
        if received is None:
            return
        message, (answers, *fds) = received
        reply = socket.socket(fileno=answers)
        try:
            getattr(self, "_do_" + message["op"])(message, fds, reply)
            wire.send(reply, {"ok": True})
        except BaseException as error:
            self._report(reply, error)

    def _do_freeze(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        self._inside(fds[0], mounts.freeze)

    def _do_thaw(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        self._inside(fds[0], mounts.thaw)

    def _do_switch(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        """Freeze, and on success give the sandbox a new upper layer."""
        spec = mounts.RootSpec.from_message(message)
        built = mounts.build(spec, self._ids_of(message["pid"]), self._devices)

        def exchange() -> None:
            mounts.freeze()
            try:
                mounts.replace(spec, built)
            except BaseException:
                mounts.thaw()
                raise

        self._inside(fds[0], exchange)

    def _do_root(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        """Hand out a detached copy of a container's root, to be the lowest layer of its overlay."""

        def clone() -> None:
            wire.send(reply, {"ok": True}, [syscalls.open_tree("/", clone=True)])

        self._inside(fds[0], clone)

    def _do_adopt(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        """Give a container that nobody has used yet the root of a sandbox."""
        spec = mounts.RootSpec.from_message(message)
        built = mounts.build(spec, self._ids_of(message["pid"]), self._devices)

        def furnish() -> None:
            mounts.replace(spec, built)
            containers.furnish(message["directories"], message["uid"], message["gid"], message["fresh"])

        self._inside(fds[0], furnish)
        warden.watch(self._warden, fds[0], os.path.dirname(spec.layers[0]), message["disk"], message["wall"])

    def _do_copy(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
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

    def _do_squash(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        squash(message["layers"], message["image"], message["target"], self._privileged)

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

        self._inside(pidfd, run, NAMESPACES | syscalls.CLONE_NEWCGROUP)

    def _do_sweep(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        """Kill as root, which the first process is not: everything since ``since`` and not below ``keep``."""

        def sweep() -> None:
            own = int(os.readlink("/proc/self"))
            processes.eliminate(message["since"], [*message["keep"], own], _nothing)

        self._inside(fds[0], lambda: _in_child(sweep), syscalls.CLONE_NEWPID)

    def _stop(self, pidfd: int) -> None:
        """Kill what runs in a sandbox now, but for its first process, and wait until that is gone."""

        def kill() -> None:
            self._inside(pidfd, lambda: _in_child(processes.eliminate_now), syscalls.CLONE_NEWPID)

        _in_child(kill)

    def _ids_of(self, pid: int) -> mounts.Ids:
        if not self._privileged:
            return mounts.Ids()
        if _shares_ids(pid):
            return mounts.Ids(0)
        with open(f"/proc/{pid}/uid_map") as file:
            base = int(file.read().split()[1])
        return mounts.Ids(base, os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC))

    def _inside(self, pidfd: int, action: Callable[[], None], more: int = 0) -> None:
        """Enter the sandbox's user, mount and ``more`` namespaces for good, and run ``action`` as root there.

        All at once: what this process may do to the sandbox's first process changes on the way.
        """
        own = syscalls.CLONE_NEWUSER if self._privileged and not _shares_ids(_pid_of(pidfd)) else 0
        syscalls.setns(pidfd, own | syscalls.CLONE_NEWNS | more)
        if self._privileged:
            _become_root()
        action()

    @staticmethod
    def _report(reply: socket.socket, error: BaseException) -> None:
        try:
            wire.send(reply, wire.error(error))
        except OSError:
            return


def _in_child(action: Callable[[], None]) -> None:
    """Run ``action`` in a forked child, and wait until that has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


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

"""The zygote: a bare, single-threaded process that sandboxes are cloned from, to inherit nothing of a trainer.

It holds the privileges that the sandboxes' first processes give up: it builds overlays, maps ids, exchanges the root
of a running sandbox, merges layers, and starts commands as root inside. It dies with its client.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from forkgym.sandboxes.local import init, mounts, seccomp, syscalls, wire

_NAMESPACES = (
    syscalls.CLONE_NEWNS
    | syscalls.CLONE_NEWPID
    | syscalls.CLONE_NEWNET
    | syscalls.CLONE_NEWIPC
    | syscalls.CLONE_NEWUTS
    | syscalls.CLONE_NEWCGROUP
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
        self._next_range = os.getpid() % _RANGES

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
                mounts.close_all(fds)
                reply.close()

    def _do_create(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        spec = init.BoxSpec.from_message(message, nested=not self._privileged)
        go, started = wire.pair()
        flags = _NAMESPACES | (syscalls.CLONE_NEWUSER if self._privileged else 0)
        pid = syscalls.clone_process(flags)
        if pid == 0:
            self._become_box(spec, started, socket.socket(fileno=fds[0]), reply)
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
            for path in message["join"]:
                _write(path, str(pid))
            wire.send(reply, {"pid": pid, "base": ids.base}, [pidfd])
            wire.send(go, {}, built)
            mounts.close_all(built)
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            raise
        finally:
            go.close()
            if pidfd >= 0:
                os.close(pidfd)

    def _become_box(
        self, spec: init.BoxSpec, started: socket.socket, own: socket.socket, reply: socket.socket
    ) -> NoReturn:
        try:
            syscalls.close_others([started.fileno(), own.fileno(), reply.fileno()])
            received = wire.receive(started)
            started.close()
            if received is not None:
                if self._privileged:
                    _become_root()
                syscalls.set_name("init")
                init.run(own, reply, spec, received[1], self._seccomp)
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
            mounts.close_all(built)

    def _do_copy(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        def copy() -> None:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for volume in mounts.VOLUMES:
                source, target = (os.path.join(message[name], volume) for name in ("source", "target"))
                pid = os.posix_spawn(_COPY, ["cp", "-a", "--", source + "/.", target], {})
                if os.waitpid(pid, 0)[1]:
                    raise OSError(errno.EIO, "the writable layer could not be copied")

        self._aside(reply, copy)

    def _ids_of(self, pid: int) -> mounts.Ids:
        if not self._privileged:
            return mounts.Ids()
        with open(f"/proc/{pid}/uid_map") as file:
            base = int(file.read().split()[1])
        return mounts.Ids(base, os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC))

    def _inside(self, pidfd: int, reply: socket.socket, action: Callable[[], None]) -> None:
        """Run ``action`` in a child that entered the sandbox's user and mount namespaces, as root there."""

        def enter() -> None:
            syscalls.setns(pidfd, (syscalls.CLONE_NEWUSER if self._privileged else 0) | syscalls.CLONE_NEWNS)
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


def main(fd: int, mode: str, devices: str) -> None:
    """Entry point of ``boot.py``. ``mode``: root, rootless, or entered (rootless, second start).

    ``devices`` is an empty directory to mount the sandboxes' /dev at, out of everybody else's sight.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    requests = socket.socket(fileno=fd)
    try:
        if mode == "rootless":
            _enter_namespaces(fd, devices)
        _prepare(devices, privileged=mode == "root")
        zygote = Zygote(requests, privileged=mode == "root", devices=devices)
    except Exception as error:
        wire.send(requests, wire.error(error))
        return
    wire.send(requests, {"ready": True})
    requests.set_inheritable(False)
    gc.collect()
    gc.freeze()
    gc.disable()
    zygote.serve()


def _enter_namespaces(fd: int, devices: str) -> NoReturn:
    """Become root of a namespace of our own, and start again: only then this process's memory is its own too."""
    uid, gid = os.getuid(), os.getgid()
    syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"0 {uid} 1")
    _write("/proc/self/gid_map", f"0 {gid} 1")
    os.set_inheritable(fd, True)
    os.execv(sys.executable, [sys.executable, "-I", "-S", sys.argv[0], str(fd), "entered", devices])


def _prepare(devices: str, privileged: bool) -> None:
    syscalls.overwrite_command_line("init")
    syscalls.set_name("zygote")
    if privileged:
        syscalls.unshare(syscalls.CLONE_NEWNS)
        # Taking the ids of a sandbox for mounting must not cost the capabilities to mount.
        syscalls.prctl(syscalls.PR_SET_SECUREBITS, syscalls.SECBIT_NO_SETUID_FIXUP)
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_SLAVE)
    mounts.make_devices(devices, privileged)


def _become_root() -> None:
    """Take id 0 of the namespace just entered."""
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)

"""The first process of a local sandbox: sets it up, gives up privileges, then serves its owner (``guest.server``)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import socket
import stat
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from forkgym.sandboxes.guest import syscalls, wire
from forkgym.sandboxes.guest.server import Server, forget_imports, serve_aside
from forkgym.sandboxes.local import mounts

# What root inside may still do, to files and ids of its own sandbox: chown, dac_override, fowner, fsetid, kill,
# setgid, setuid, net_bind_service, sys_chroot, setfcap.
ROOT_CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 10, 18, 31})

OPEN_ROOT = 0o1777
"""Mode of ``/``: commands may make directories such as ``/app`` there, as on a machine of their own. As in ``/tmp``,
nobody can take away what is another's."""


@dataclass(frozen=True)
class BoxSpec:
    """What the first process needs to know. ``nested``: rootless, one id of the host serves all ids inside.

    ``fresh``: nobody has worked in these files yet.
    """

    root: mounts.RootSpec
    uid: int
    gid: int
    workdir: str
    hostname: str
    rlimits: dict[str, int]
    fresh: bool
    nested: bool

    @classmethod
    def from_message(cls, message: dict[str, Any], nested: bool) -> BoxSpec:
        """Read it from the request that the client sent."""
        names = ("uid", "gid", "workdir", "hostname", "rlimits", "fresh")
        return cls(mounts.RootSpec.from_message(message), **{name: message[name] for name in names}, nested=nested)


def prepare() -> None:
    """In new namespaces: what does not depend on what the sandbox will be."""
    os.setsid()
    forget_imports()
    _loopback_up()


def run(
    requests: socket.socket,
    reply: socket.socket,
    spec: BoxSpec,
    built: list[int],
    seccomp: bytes,
    leave: Callable[[], None] | None,
) -> NoReturn:
    """Become the sandbox, once prepared. Reports on ``reply`` whether that worked, and never returns.

    ``leave`` takes the calling thread out of the group whose memory is bounded.
    """
    try:
        syscalls.unshare(syscalls.CLONE_NEWCGROUP)  # only now, since the root of the new one is the group we are in
        mounts.enter(spec.root, built)
        socket.sethostname(spec.hostname)
        _make_workdir(spec)
        drop_privileges(spec, seccomp)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        server = Server(requests)
        if leave is not None:
            serve_aside(server)
            leave()
        wire.send(reply, {"ready": True})
        reply.close()
        while leave is not None:
            signal.pause()
        server.serve()
    except BaseException as error:
        with contextlib.suppress(OSError):
            wire.send(reply, wire.error(error))
    os._exit(1)


def drop_privileges(spec: BoxSpec, seccomp: bytes) -> None:
    """Become ``spec.uid`` without a capability (root: with a few), unable to gain any, closed to inspection."""
    if spec.nested and spec.uid != 0:
        _nest(spec)
    if not spec.nested or spec.uid != 0:
        # Counts per namespace, so it must be set in the sandbox's own one.
        _write("/proc/sys/user/max_user_namespaces", "0")
    if not spec.nested:
        os.setgroups([])
    limit(spec.uid, spec.gid, spec.rlimits, seccomp)


def limit(uid: int, gid: int, rlimits: dict[str, int], seccomp: bytes) -> None:
    """The last steps, which take away the means to undo themselves."""
    keep = ROOT_CAPABILITIES if uid == 0 else frozenset[int]()
    syscalls.drop_bounding_set(keep)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    syscalls.set_capabilities(keep)
    for name, value in rlimits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    os.umask(0o022)
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    syscalls.install_seccomp(seccomp)


def _nest(spec: BoxSpec) -> None:
    """Move into a user namespace where the only id, root outside, is ``spec.uid``."""
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)  # else /proc/self/uid_map belongs to root outside
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{spec.uid} 0 1")
    _write("/proc/self/gid_map", f"{spec.gid} 0 1")


def _make_workdir(spec: BoxSpec) -> None:
    """Make the working directory and give it to the sandbox's user."""
    if spec.fresh:
        os.chmod("/", OPEN_ROOT)
        os.makedirs(spec.workdir, exist_ok=True)
        _hand_workdir_over(spec)
        return
    # In a fork, what stands there (a link to another's directory, a file, nothing) is what the user left behind.
    if not os.path.lexists(spec.workdir):
        with contextlib.suppress(OSError):
            os.makedirs(spec.workdir)
            _hand_workdir_over(spec)


def _hand_workdir_over(spec: BoxSpec) -> None:
    status = os.stat(spec.workdir)
    shared = status.st_mode & stat.S_IWOTH or spec.workdir == "/"
    if not (spec.nested or shared or status.st_uid == spec.uid):
        os.chown(spec.workdir, spec.uid, spec.gid)


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, 0x8914, struct.pack("16sH14x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS, UP and RUNNING


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)

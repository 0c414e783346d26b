"""The first process of a container: meets its owner, gives up what it can, then serves (``guest.server``).

Started from the toolbox by its own loader, whatever the image holds: ``ld.so ... python -I -S -B start.py SOCKET``. An
owner who cannot share a socket with it speaks over the standard streams: ``start.py -``. For such an owner a process
that is entered from outside runs commands as root: ``start.py root``.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
from typing import Any

from forkgym.sandboxes.guest import relay, syscalls, wire
from forkgym.sandboxes.guest.server import Server, forget_imports, serve_aside

# Of version 2, then of version 1.
_ACCOUNTS = (
    *("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory.peak", "/sys/fs/cgroup/cpu.stat"),
    *("/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/memory/memory.max_usage_in_bytes"),
    *("/sys/fs/cgroup/cpuacct/cpuacct.usage", "/sys/fs/cgroup/pids/pids.current", "/sys/fs/cgroup/pids.current"),
)


def main(how: str) -> None:
    """Serve the owner that listens on the socket at ``how``, or is behind the standard streams.

    The first message says which limits to take on.
    """
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if how in ("-", "root"):
        _serve_afar(relay.Relay(lasting=how == "root"))
    else:
        _serve_at(how)


def _serve_at(path: str) -> None:
    requests = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    requests.connect(path)
    forget_imports()
    received = wire.receive(requests)
    if received is None:
        return
    message, fds = received
    reply = socket.socket(fileno=fds[0])
    try:
        accounts = _give_up(message)
        serve_aside(Server(requests))
    except Exception as error:
        wire.send(reply, wire.error(error))
        return
    wire.send(reply, {"accounts": list(accounts)}, list(accounts.values()))
    reply.close()
    wire.close_all(list(accounts.values()))
    while True:
        signal.pause()


def _serve_afar(owner: relay.Relay) -> None:
    forget_imports()
    message = owner.begin()
    ours, theirs = wire.pair()
    try:
        accounts = _give_up(message)
        serve_aside(Server(theirs))
    except Exception as error:
        owner.answer(wire.error(error))
        return
    owner.answer({"pid": os.getpid()})
    owner.serve(ours, accounts)


def _give_up(message: dict[str, Any]) -> dict[str, int]:
    """Take on limits and close doors; returns the files that tell what the container uses."""
    if "user" in message:
        uid, gid = message["user"]
        _become(uid, gid, frozenset(message["capabilities"]))
    for name, value in message["rlimits"].items():
        number = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(number)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (bound, bound))
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    syscalls.set_name("init")
    accounts = _open_accounts()
    syscalls.install_seccomp(bytes.fromhex(message["seccomp"]))  # on top of the daemon's
    return accounts


def _become(uid: int, gid: int, keep: frozenset[int]) -> None:
    """Go on as this user, with the capabilities ``keep`` and no way to more."""
    syscalls.drop_bounding_set(keep)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    syscalls.set_capabilities(keep)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)  # which has changed with the user


def _open_accounts() -> dict[str, int]:
    """The files of the control group that tell what the container uses, as they are mounted in it, by their names."""
    opened: dict[str, int] = {}
    for path in _ACCOUNTS:
        with contextlib.suppress(OSError):
            opened[path.rpartition("/")[2]] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return opened

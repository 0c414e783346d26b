"""The first process of a container: connects to its owner, gives up what it can, then serves (``guest.server``).

Started from the toolbox by its own loader, whatever the image holds: ``ld.so ... python -I -S -B start.py SOCKET``.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket

from forkgym.sandboxes.guest import syscalls, wire
from forkgym.sandboxes.guest.server import Server, forget_imports, serve_aside

# Of version 2, then of version 1.
_ACCOUNTS = (
    *("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory.peak", "/sys/fs/cgroup/cpu.stat"),
    *("/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/memory/memory.max_usage_in_bytes"),
    *("/sys/fs/cgroup/cpuacct/cpuacct.usage", "/sys/fs/cgroup/pids/pids.current", "/sys/fs/cgroup/pids.current"),
)


def main(path: str) -> None:
    """Serve the owner that listens on the socket at ``path``. The first message says which limits to take on."""
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    requests.connect(path)
    forget_imports()
    received = wire.receive(requests)
    if received is None:
        return
    message, fds = received
    reply = socket.socket(fileno=fds[0])
    try:
        for name, value in message["rlimits"].items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        syscalls.set_name("init")
        names, accounts = _open_accounts()
        syscalls.install_seccomp(bytes.fromhex(message["seccomp"]))  # on top of the daemon's
        server = Server(requests)
        serve_aside(server)
    except Exception as error:
        wire.send(reply, wire.error(error))
        return
    wire.send(reply, {"accounts": names}, accounts)
    reply.close()
    wire.close_all(accounts)
    while True:
        signal.pause()


def _open_accounts() -> tuple[list[str], list[int]]:
    """The files of the control group that tell what the container uses, as they are mounted in it, by their names."""
    opened: dict[str, int] = {}
    for path in _ACCOUNTS:
        with contextlib.suppress(OSError):
            opened[path.rpartition("/")[2]] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return list(opened), list(opened.values())

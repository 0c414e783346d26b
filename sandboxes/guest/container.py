"""The first process of a container: connects to its owner, gives up what it can, then serves (``guest.server``).

Started from the toolbox by its own loader, whatever the image holds: ``ld.so ... python -I -S -B start.py SOCKET``.
"""

from __future__ import annotations

import resource
import signal
import socket

from forkgym.sandboxes.guest import syscalls, wire
from forkgym.sandboxes.guest.server import Server, forget_imports


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
        server = Server(requests)
    except Exception as error:
        wire.send(reply, wire.error(error))
        return
    wire.send(reply, {"ready": True})
    reply.close()
    server.serve()

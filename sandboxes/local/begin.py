"""How the zygote begins: its namespaces, the devices that it gives to sandboxes, and then its service."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from typing import NoReturn

from forkgym.sandboxes.guest import syscalls, wire
from forkgym.sandboxes.local import mounts
from forkgym.sandboxes.local.zygote import Zygote


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


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)

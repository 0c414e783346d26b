"""How much disk a sandbox occupies: what has a name, and removed files that its processes still hold open."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

NAME = 1024  # bytes that an inode counts for, whatever its file holds: it costs as much


def named(directory: str) -> int:
    """Bytes that a tree occupies. Each inode counts once; no link is followed. Raises ``OSError``.

    A tree of more levels than this process may hold descriptors is an error (EMFILE).
    """
    total, seen = 0, set[int]()
    levels: list[tuple[int, list[str]]] = [_open(directory, None)]
    try:
        while levels:
            handle, names = levels[-1]
            if not names:
                os.close(levels.pop()[0])
                continue
            name = names.pop()
            try:
                status = os.stat(name, dir_fd=handle, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    levels.append(_open(name, handle))
            except (FileNotFoundError, NotADirectoryError):
                continue
            if status.st_ino not in seen:
                total += status.st_blocks * 512 + NAME
                if status.st_nlink > 1:
                    seen.add(status.st_ino)
    finally:
        for handle, _ in levels:
            os.close(handle)
    return total


def nameless(pidfd: int) -> int:
    """Bytes of the files that were removed while processes of the sandbox behind ``pidfd`` hold them open.

    Files in memory (``/dev/shm``, ``memfd_create``) are not counted: they are memory.
    """
    first = _pid_of(pidfd)
    found: dict[tuple[int, int], int] = {}
    with contextlib.suppress(OSError):
        anonymous = os.memfd_create("", os.MFD_CLOEXEC)
        try:
            memory = {os.fstat(anonymous).st_dev, os.stat(f"/proc/{first}/root/dev/shm").st_dev}
        finally:
            os.close(anonymous)
        for status in _opened(os.readlink(f"/proc/{first}/ns/pid")):
            if stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_dev not in memory:
                found[status.st_dev, status.st_ino] = status.st_blocks * 512 + NAME
    return sum(found.values())


def held(directory: str) -> int:
    """Bytes in use on the file system of ``directory``, counted as above."""
    status = os.statvfs(directory)
    return (status.f_blocks - status.f_bfree) * status.f_frsize + (status.f_files - status.f_ffree) * NAME


def _open(name: str, parent: int | None) -> tuple[int, list[str]]:
    handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        return handle, os.listdir(handle)
    except BaseException:
        os.close(handle)
        raise


def _pid_of(pidfd: int) -> str:
    with open(f"/proc/self/fdinfo/{pidfd}") as file:
        return dict(line.split(":\t", 1) for line in file.read().splitlines())["Pid"]


def _opened(namespace: str) -> Iterator[os.stat_result]:
    """The status of each file that a process of this pid namespace holds open."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/ns/pid") != namespace:
                continue
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    yield os.stat(f"/proc/{pid}/fd/{name}")

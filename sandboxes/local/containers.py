"""What the zygote does as root inside a container of the docker backend, when it gives it the root of a sandbox."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence

from forkgym.sandboxes.guest import syscalls
from forkgym.sandboxes.local.init import OPEN_ROOT

_SOCKET_PLACE = "/.forkgym/run"
_GROUPS = "/sys/fs/cgroup"
_HOSTS = "127.0.0.1 localhost sandbox\n::1 localhost\n"


def furnish(directories: Sequence[str], uid: int, gid: int, fresh: bool) -> None:
    """Make the directories of the user ``uid``. ``fresh``: nobody has worked in these files yet."""
    syscalls.umount(_SOCKET_PLACE)  # it has served, and shows a path of the host
    fd = syscalls.open_tree(_GROUPS)
    syscalls.mount_setattr(fd, set=syscalls.ATTR_RDONLY)  # not all daemons do
    os.close(fd)
    os.umask(0o022)
    if fresh:
        os.chmod("/", OPEN_ROOT)
    for path in directories:
        # In a fork, what stands there (a link to another's directory, a file) is what the user left behind.
        if fresh or not os.path.lexists(path):
            with contextlib.suppress(FileExistsError):
                os.makedirs(path, exist_ok=True)
            status = os.stat(path)
            if status.st_uid != uid and not status.st_mode & stat.S_IWOTH and path != "/":
                os.chown(path, uid, gid)
    if fresh:
        _name_loopback()


def _name_loopback() -> None:
    """Images come with an empty /etc/hosts, since a daemon mounts its own over it."""
    with contextlib.suppress(OSError):
        fd = os.open("/etc/hosts", os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        if not os.fstat(fd).st_size:
            os.write(fd, _HOSTS.encode())
        os.close(fd)

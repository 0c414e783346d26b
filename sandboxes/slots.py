"""A number of slots that the processes of one user share on one machine; the kernel frees those of a dead process."""

from __future__ import annotations

import fcntl
import os
import re

from forkgym.errors import ConfigError
from forkgym.sandboxes import state

_held: set[int] = set()


class Slots:
    """``count`` slots under one name; whoever uses the name should state the same ``count``."""

    def __init__(self, name: str, count: int) -> None:
        if not re.fullmatch(r"\w[\w.-]*", name, re.ASCII):
            raise ConfigError(f"the name of shared slots is {name!r}; use letters, digits, '_', '-' and '.'")
        self._folder = state.state_dir() / "slots" / name
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._count = count

    def claim(self) -> int | None:
        """A free slot, to be given to ``release``; ``None`` if all are taken."""
        for index in range(self._count):
            handle = os.open(self._folder / str(index), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
            else:
                _held.add(handle)
                return handle
        return None


def release(slot: int) -> None:
    """Free a slot of this process."""
    _held.discard(slot)
    fcntl.flock(slot, fcntl.LOCK_UN)
    os.close(slot)


def _after_fork_in_child() -> None:
    """A forked child must not keep the slots of a dead parent. Closing its copies does not free a living parent's."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_after_fork_in_child)

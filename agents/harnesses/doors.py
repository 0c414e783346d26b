"""The gateways of one agent: a folder of sockets that is mounted into its sandboxes, a gateway for each policy."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
import uuid
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from forkgym.agents.base import ChatFormat, Policy
from forkgym.registry import resolve
from forkgym.sandboxes import state

if TYPE_CHECKING:
    from forkgym.agents.gateway.server import Gateway

RELAY = Path(__file__).with_name("relay.py")
START = Path(__file__).with_name("start.py")
_GATEWAY = {"gateway": "forkgym.agents.gateway.server:Gateway"}


def gateway_class() -> type[Gateway]:
    """Raises ``MissingExtraError`` without the extra ``gateway``."""
    return resolve("gateway", "gateway", _GATEWAY, {"gateway": "gateway"})


@dataclass
class _Door:
    gateway: Gateway
    name: str
    users: int = 0


class Doors:
    """``folder`` holds what starts programs in a sandbox, and the socket of each gateway while an episode uses it."""

    def __init__(self, format: ChatFormat | None) -> None:
        self._make = gateway_class()
        self._format = format
        self._doors: dict[int, _Door] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self.folder = _folder()
        for program in (RELAY, START):
            shutil.copy(program, self.folder)
        # By descriptor: the path of a socket may have 107 bytes, and the folder's own may have more.
        self._handle = os.open(self.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        weakref.finalize(self, _remove, self.folder, self._handle, os.getpid())

    @contextmanager
    def open(self, policy: Policy) -> Generator[tuple[Gateway, str]]:
        """The gateway of this policy and its socket's name. The first episode opens it, the last one closes it."""
        with self._lock:
            door = self._doors.get(id(policy))
            if door is None:
                name = f"socket{next(self._numbers)}"
                gateway = self._make(policy, self._format, socket=f"/proc/self/fd/{self._handle}/{name}")
                gateway.__enter__()
                door = self._doors[id(policy)] = _Door(gateway, name)
            door.users += 1
        try:
            yield door.gateway, door.name
        finally:
            with self._lock:
                door.users -= 1
                if not door.users:
                    del self._doors[id(policy)]
                    door.gateway.close()


def sweep() -> int:
    """Remove the folders of processes that are gone; returns how many."""
    gone = [path for path in _root().iterdir() if _abandoned(path)]
    for path in gone:
        state.remove_tree(path)
    return len(gone)


def _root() -> Path:
    root = state.state_dir() / "gateways"
    root.mkdir(mode=0o700, exist_ok=True)
    return root


def _folder() -> Path:
    """A new folder that everybody in a sandbox may enter."""
    sweep()
    folder = _root() / f"{uuid.uuid4().hex[:8]}@{state.Owner.current().tag()}"
    folder.mkdir()
    folder.chmod(0o755)
    return folder


def _abandoned(path: Path) -> bool:
    owner = state.Owner.from_tag(path.name.partition("@")[2])
    return owner is None or not owner.alive()


def _remove(folder: Path, handle: int, owner: int) -> None:
    if os.getpid() == owner:  # a forked child does not own it
        os.close(handle)
        state.remove_tree(folder)

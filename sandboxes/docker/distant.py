"""Containers of a daemon that shares no socket with us: on another machine, in a virtual one, behind a tunnel.

Their first process and we speak over its standard streams, which the daemon carries (``bridge``). The toolbox is sent
to the daemon once.
"""

from __future__ import annotations

import io
import platform
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forkgym.sandboxes.docker import toolbox
from forkgym.sandboxes.docker.bridge import bridge
from forkgym.sandboxes.docker.container import (
    ROOT_CAPABILITIES,
    Container,
    Start,
    archive,
    container_options,
    host_options,
    is_owned,
    label,
    labelled,
)
from forkgym.sandboxes.docker.engine import Engine
from forkgym.sandboxes.docker.link import Link
from forkgym.sandboxes.docker.meter import DistantMeter
from forkgym.sandboxes.errors import ImageError, SandboxDeadError, SandboxUnavailableError
from forkgym.sandboxes.local import cleanup, init
from forkgym.sandboxes.owner.environment import user_ids
from forkgym.sandboxes.owner.reply import Reply, ask

_REPOSITORY = "forkgym"
_TOOLBOX = "forkgym-toolbox"
_sending = threading.Lock()


class DistantContainer(Container):
    """See ``Container``."""

    distant = True

    def death(self, message: str) -> SandboxDeadError:
        """See ``Container.death``."""
        return self._link.death(message)

    def kill(self) -> None:
        """See ``Container.kill``."""
        if hasattr(self, "_link"):
            self._link.close()

    def remove(self) -> None:
        """See ``Container.remove``."""
        cleanup.later(lambda: self._engine.remove(self.name))

    def as_root(self, name: str, commands: Callable[[], list[int]]) -> tuple[Start, Callable[[], None]]:
        """In a process that the daemon starts in the container for this command."""
        link: Link | None = None
        pid = 0

        def end() -> None:
            self._roots.discard(pid)
            if link is not None:
                link.socket.close()

        def start(message: dict[str, Any], fds: list[int]) -> Reply:
            nonlocal link, pid
            if not self.alive:
                raise self.death("the sandbox is gone")
            stream = self._engine.enter(self.name, toolbox.ROOT_COMMAND, "0:0")
            link = bridge().connect(stream, once=True, notes=self._link.notes)
            try:
                pid = self._introduce(link.socket, link.death, **_as("root"))[0]["pid"]
                self._roots.add(pid)
                return _LastReply(link, message, fds, end)
            except BaseException:
                end()
                raise

        def kill() -> None:
            if link is not None:
                keep = [*commands(), *(self._roots - {pid})]  # what is below its own process is to be killed
                ask(link.socket, {"op": "kill", "id": name, "since": None, "keep": keep})

        return start, kill

    def _start(self, root: Path) -> None:
        self._roots = set[int]()  # processes that serve commands as root
        volume = f"{_send_toolbox(self._engine, root)}:ro"
        # Its first process starts as root and gives that up, so that the daemon can start others as root.
        host = {**host_options(self.config, (), [*ROOT_CAPABILITIES, "SETPCAP"]), "volumes_from": [volume]}
        options = {**container_options(toolbox.DISTANT_COMMAND, (0, 0)), "stdin_open": True}
        stream = self._engine.run(self.name, self.config.image, host, archive(self.config), attach=True, **options)
        assert stream is not None
        self._link = bridge().connect(stream)
        self.socket = self._link.socket

    def _begin(self) -> None:
        self._introduce(self.socket, self._link.death, wall=self.config.limits.wall, **_as(self.config.user))
        look = {"op": "usage"}
        self.meter = DistantMeter(self._link.notes, lambda: ask(self.socket, look)[0]["accounts"])


class _LastReply(Reply):
    """The only one of its connection, which ``end`` gives up."""

    def __init__(self, link: Link, message: dict[str, Any], fds: list[int], end: Callable[[], None]) -> None:
        super().__init__(link.socket, message, fds, link.death)
        self._end = end

    def close(self) -> None:
        """See ``Reply.close``."""
        super().close()
        self._end()


def _as(user: str) -> dict[str, Any]:
    """What a process that was started as root is told to become."""
    ids = user_ids(user)
    return {"user": ids, "capabilities": sorted(init.ROOT_CAPABILITIES) if ids[0] == 0 else []}


def _send_toolbox(engine: Engine, state: Path) -> str:
    """The name of a container of the daemon whose volume shows the toolbox, made on first use.

    It never runs. A volume is shown read-only even to root inside, and no image of a sandbox holds a copy of it.
    Raises ``SandboxUnavailableError`` and ``SandboxError``.
    """
    name = f"{_TOOLBOX}-{toolbox.fingerprint()}"
    with _sending:
        if engine.has_container(name):
            return name
        info, machine = engine.info(), platform.machine()
        if (info["OSType"], info["Architecture"]) != ("linux", machine):
            raise SandboxUnavailableError(
                f"the docker daemon runs {info['OSType']} on {info['Architecture']}, but the interpreter by which "
                f"sandboxes are served is this machine's, for linux on {machine}: use a daemon of this architecture"
            )
        tag = f"toolbox-{toolbox.fingerprint()}"
        about = {_TOOLBOX: label("toolbox")["forkgym"]}
        try:
            engine.image_id(f"{_REPOSITORY}:{tag}")
        except ImageError:
            engine.import_image(_packed(toolbox.prepare(state)), _REPOSITORY, tag, about, [toolbox.PLACE])
        engine.hold(name, f"{_REPOSITORY}:{tag}", about)
        return name


def _packed(folder: Path) -> bytes:
    with io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w") as files:
            files.add(folder, toolbox.PLACE.lstrip("/"), filter=_of_root)
        return buffer.getvalue()


def reap_toolboxes(engine: Engine) -> int:
    """Remove those of other versions, once their senders are gone and no container shows them; returns how many."""
    removed = 0
    for name, labels in engine.containers(_TOOLBOX):
        about = labelled({"forkgym": labels[_TOOLBOX]})
        if name.startswith(_TOOLBOX) and not name.endswith(toolbox.fingerprint()) and not is_owned(about):
            removed += engine.remove(name)
            engine.remove_image(f"{_REPOSITORY}:toolbox-{name.rpartition('-')[2]}")
    return removed


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry

"""A started container whose first process serves this process, and nobody else.

``HostContainer`` is one of a daemon of this host, with whose first process a socket is shared; ``distant`` has the
other kind.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import posixpath
import select
import signal
import socket
import struct
import tarfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from forkgym.sandboxes import state
from forkgym.sandboxes.base import Limits, Mount
from forkgym.sandboxes.docker import toolbox
from forkgym.sandboxes.docker.engine import Engine
from forkgym.sandboxes.docker.meter import Meter
from forkgym.sandboxes.errors import SandboxDeadError, SandboxError, SandboxTimeoutError
from forkgym.sandboxes.guest import processes
from forkgym.sandboxes.limits import rlimits
from forkgym.sandboxes.local import cleanup, launcher, seccomp
from forkgym.sandboxes.local.cgroups import Group
from forkgym.sandboxes.local.disk import new_id
from forkgym.sandboxes.owner.environment import user_ids
from forkgym.sandboxes.owner.reply import Refused, Reply, ask

LABEL = "forkgym"  # one label holds all, since images hand theirs on to containers and these to images
START_PATIENCE = 120.0
_SHM = 64 << 20
_PEER = "iII"  # struct ucred: pid, uid, gid
ROOT_CAPABILITIES = [
    *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "NET_BIND_SERVICE", "SYS_CHROOT"),
    "SETFCAP",
]


def label(kind: str, **more: object) -> dict[str, str]:
    """The label of something that this process makes."""
    return {LABEL: json.dumps({"kind": kind, "owner": asdict(state.Owner.current()), **more})}


def labelled(labels: dict[str, str]) -> dict[str, Any]:
    """What our label says; empty for a label of somebody else."""
    try:
        value = json.loads(labels.get(LABEL, ""))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def is_owned(about: dict[str, Any]) -> bool:
    """True unless the process that made what has this label is certainly gone."""
    try:
        return state.Owner(**about["owner"]).alive()
    except (KeyError, TypeError):
        return True


@dataclass(frozen=True)
class Config:
    """What makes one container different from another. ``directories``: made for the user, unless they are there."""

    image: str
    limits: Limits
    user: str
    mounts: tuple[Mount, ...] = ()
    directories: tuple[str, ...] = ()


Start = Callable[[dict[str, Any], list[int]], Reply]


class Container(ABC):
    """Started on construction; raises ``SandboxError`` and leaves nothing if it does not come up.

    ``socket``: to its first process. ``pid`` is 0 if this process cannot see that one. ``ids``: uid and gid of its
    user, if they mean something on this host.
    """

    socket: socket.socket
    distant: bool = False  # no descriptors can be sent through ``socket``, only copies

    def __init__(self, engine: Engine, root: Path, config: Config) -> None:
        self.config = config
        self._engine = engine
        self._id = new_id()
        self.name = f"forkgym-{self._id}"
        self.pid, self.pidfd = 0, -1
        self.ids: tuple[int, int] | None = None
        self.meter = Meter((), ())
        self.group: Group | None = None  # if this process can change it
        try:
            self._start(root)
            self._begin()
        except BaseException:
            self.kill()
            self.remove()
            raise

    @property
    def near(self) -> bool:
        """True if this process can reach into the container: as root of the same host."""
        return self.pidfd >= 0 and launcher.is_privileged()

    @property
    def alive(self) -> bool:
        """False once its first process is gone, which holds the other end of the socket."""
        poll = select.poll()
        poll.register(self.socket, 0)
        return self.socket.fileno() >= 0 and not poll.poll(0)

    def death(self, message: str) -> SandboxDeadError:
        """The error for what was to be done in it, once it is gone."""
        return SandboxDeadError(message)

    @abstractmethod
    def kill(self) -> None:
        """Kill everything inside, and wait until it is gone if that can be seen from here. Idempotent."""

    @abstractmethod
    def remove(self) -> None:
        """Give it up, in the background."""

    @abstractmethod
    def as_root(self, name: str, commands: Callable[[], list[int]]) -> tuple[Start, Callable[[], None]]:
        """How to start command ``name`` as root inside, and to kill it; ``commands``: which others must live."""

    @abstractmethod
    def _start(self, root: Path) -> None:
        """Make the container and find ``socket``."""

    @abstractmethod
    def _begin(self) -> None:
        """Make its first process serve."""

    def _introduce(
        self, socket: socket.socket, dead: Callable[[str], SandboxDeadError] = SandboxDeadError, **more: object
    ) -> tuple[dict[str, Any], list[int]]:
        """Say to a first process what it has to know."""
        message = {"rlimits": rlimits(self.config.limits, cgroups=True), "seccomp": seccomp.program().hex(), **more}
        try:
            return ask(socket, message, patience=START_PATIENCE, dead=dead)
        except Refused as error:
            raise SandboxError(f"the first process of container {self.name} cannot serve: {error.strerror}") from error


class HostContainer(Container):
    """See ``Container``. Its lease holds the directory of the socket."""

    def kill(self) -> None:
        """See ``Container.kill``."""
        if hasattr(self, "socket"):
            self.socket.close()  # at whose end the first process ends, and with it all others
        if self.pidfd < 0:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        processes.await_end(self.pidfd)
        self.pidfd = -1

    def remove(self) -> None:
        """See ``Container.remove``."""
        self.meter.close()
        cleanup.later(lambda: self._engine.remove(self.name))
        cleanup.later(self._lease.release)

    def as_root(self, name: str, commands: Callable[[], list[int]]) -> tuple[Start, Callable[[], None]]:
        """Through the zygote of the local backend, which enters the container."""
        if self.group is None:
            raise SandboxError("commands as root need an owner who is root here; or use DockerBackend(via='api')")
        zygote, begin, join = launcher.zygote(), processes.now(), self.group.join_files

        def start(message: dict[str, Any], fds: list[int]) -> Reply:
            limits = rlimits(self.config.limits, cgroups=True)
            request = {**message, "op": "spawn", "join": join, "rlimits": limits}
            return Reply(zygote.socket, request, [self.pidfd, *fds])

        def kill() -> None:
            ask(zygote.socket, {"op": "sweep", "since": begin, "keep": commands()}, [self.pidfd])

        return start, kill

    def _start(self, root: Path) -> None:
        self._lease = state.Lease.take(root / "boxes", self._id)
        with _listener(self._lease.path / "run") as listener:
            tools = toolbox.prepare(root)
            binds = [f"{tools}:{toolbox.PLACE}:ro", f"{self._lease.path}/run:{toolbox.PLACE}/run:ro"]
            root_inside = self.config.user == "root"
            host = host_options(self.config, binds, ROOT_CAPABILITIES if root_inside else None)
            options = container_options(toolbox.COMMAND, user_ids(self.config.user))
            self._engine.run(self.name, self.config.image, host, archive(self.config), **options)
            self.socket = self._accept(listener)
        self.pid, uid, gid = struct.unpack(_PEER, self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        self.ids = (uid, gid)
        if self.pid:
            self.pidfd = os.pidfd_open(self.pid)

    def _accept(self, listener: socket.socket) -> socket.socket:
        """The connection of the first process. Nothing else runs in the container yet, and no second one is taken."""
        deadline = time.monotonic() + START_PATIENCE
        listener.settimeout(1.0)
        while True:
            try:
                connection, _ = listener.accept()
                connection.settimeout(None)
                return connection
            except TimeoutError:
                if time.monotonic() > deadline:
                    raise SandboxTimeoutError(
                        f"the first process of container {self.name} did not connect within {START_PATIENCE:g} s; "
                        "the daemon may not see this process's state directory: set FORKGYM_STATE to one it shares, "
                        "or use DockerBackend(via='api')"
                    ) from None
                problem = self._engine.exit_message(self.name)
                if not problem.startswith("status running"):
                    raise SandboxDeadError(
                        f"container {self.name} of image {self.config.image!r} ended before it served: {problem}"
                    ) from None

    def _begin(self) -> None:
        answer, files = self._introduce(self.socket)
        self.meter = Meter(answer["accounts"], files)
        if self.near:
            self.group = Group.of(self.pid, self.config.limits)
            self.group.let_go(self.pid)


@contextlib.contextmanager
def _listener(place: Path) -> Generator[socket.socket]:
    """A socket that one container will see. The directories above are closed to other users of this host."""
    place.mkdir(mode=0o711)
    place.chmod(0o711)
    handle = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            path = f"/proc/self/fd/{handle}/socket"  # the real one may be longer than an address can be
            listener.bind(path)
            os.chmod(path, 0o666)
            listener.listen(1)
            yield listener
            os.unlink(path)
    finally:
        os.close(handle)


def host_options(config: Config, binds: Sequence[str], capabilities: list[str] | None) -> dict[str, Any]:
    """What the docker SDK calls the host configuration: walls and limits."""
    limits = config.limits
    return {
        "binds": [*binds, *(f"{mount.source}:{mount.target}:ro" for mount in config.mounts)],
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "cap_add": capabilities,
        "security_opt": ["no-new-privileges"],
        "pids_limit": limits.pids,
        "mem_limit": limits.memory,
        "memswap_limit": limits.memory,
        "nano_cpus": None if limits.cpu is None else int(limits.cpu * 1e9),
        "shm_size": _SHM,
        "ipc_mode": "private",
        "auto_remove": True,
        "log_config": {"Type": "none", "Config": {}},
    }


def container_options(command: Sequence[str], user: tuple[int, int]) -> dict[str, Any]:
    """What runs in the container, and as whom."""
    return {
        "command": list(command),
        "entrypoint": [],
        "user": f"{user[0]}:{user[1]}",
        "working_dir": "/",
        "hostname": "sandbox",
        "labels": label("box"),
    }


def archive(config: Config) -> bytes:
    """The directories of the user as a tar archive, those above them as they are."""
    if not config.directories:
        return b""
    uid, gid = user_ids(config.user)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as files:
        for path in config.directories:
            entry = tarfile.TarInfo(posixpath.normpath(path).lstrip("/"))
            entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, 0o755, uid, gid
            files.addfile(entry)
    return buffer.getvalue()

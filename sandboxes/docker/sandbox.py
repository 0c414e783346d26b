"""A sandbox in a container, as its owner sees it; how its state is kept is told by the modules that subclass it."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from forkgym.sandboxes.base import ExecResult, Sandbox, SandboxSpec, Usage
from forkgym.sandboxes.docker import toolbox
from forkgym.sandboxes.docker.container import Config
from forkgym.sandboxes.docker.engine import Engine
from forkgym.sandboxes.docker.spares import Spares
from forkgym.sandboxes.errors import SandboxDeadError, SandboxError, SandboxLimitError
from forkgym.sandboxes.guest import processes
from forkgym.sandboxes.local import launcher
from forkgym.sandboxes.local.disk import new_id
from forkgym.sandboxes.local.snapshots import Frozen
from forkgym.sandboxes.owner.environment import USERS
from forkgym.sandboxes.owner.oom import Kills
from forkgym.sandboxes.owner.reply import Reply
from forkgym.sandboxes.owner.sandbox import ServedSandbox

BACKEND = "docker"
_AT_ONCE = 16  # sandboxes started side by side; the engine bounds what of it reaches the daemon


@dataclass(frozen=True)
class Host:
    """What the sandboxes of one backend share: the daemon, the state directory, and the containers kept ready.

    ``distant``: everything goes over the daemon's API.
    """

    engine: Engine
    root: Path
    spares: Spares
    distant: bool = False


class DockerSandbox(ServedSandbox):
    """See ``forkgym.sandboxes.base.Sandbox``."""

    backend = BACKEND
    shell_place = f"{toolbox.PLACE}/dev"

    def __init__(self, host: Host, spec: SandboxSpec, origin: Frozen, config: Config) -> None:
        super().__init__(new_id(), spec, origin.lineage, origin.shells)
        self._host = host
        with _explained():
            self._container = host.spares.take(config)
        self._socket = self._container.socket
        self.distant = self._container.distant
        self.owner = self._container.ids
        self._closed = False
        self._kills = Kills()
        try:
            with _explained():
                self._settle(origin)
        except BaseException:
            self.close()
            raise
        launcher.owned.add(self)

    def usage(self) -> Usage:
        """See ``Sandbox.usage``."""
        self._require_alive()
        return self._container.meter.usage()

    @property
    def alive(self) -> bool:
        """See ``Sandbox.alive``."""
        return not (self._closed or self._foreign) and self._container.alive

    def _settle(self, origin: Frozen) -> None:
        """Make the container that was just taken into this sandbox."""

    def _kill_box(self) -> None:
        self._container.kill()

    def _discard(self) -> None:
        self._container.remove()
        self._host.spares.release(self._container.config)

    def _judge(self, result: ExecResult) -> ExecResult:
        result = super()._judge(result)
        end = processes.now()
        if not self._kills.during(end - result.duration, end, self._container.meter.oom_kills()):
            return result
        if self._container.group is not None:
            self._container.group.make_room()
        return replace(result, oom_killed=True)

    def _as_root(self, name: str) -> tuple[Callable[[dict[str, Any], list[int]], Reply], Callable[[], None]]:
        return self._container.as_root(name, lambda: self.ask({"op": "commands"})[0]["pids"])

    def _death(self, message: str) -> SandboxDeadError:
        return self._container.death(message)


@contextlib.contextmanager
def _explained() -> Generator[None]:
    """Failures of this machine to start a sandbox, in the terms of this room."""
    try:
        yield
    except OSError as error:
        if isinstance(error, SandboxError):
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN):
            raise SandboxLimitError(f"the machine cannot hold another sandbox: {error}") from error
        raise SandboxError(f"the sandbox did not start: {error}") from error


def directories(spec: SandboxSpec) -> tuple[str, ...]:
    """The directories that a sandbox's user finds, and owns."""
    return (USERS[spec.user][2], spec.workdir)


def start_all(make: Callable[[], Sandbox], count: int) -> Sequence[Sandbox]:
    """``count`` sandboxes, started side by side; all of them or, on failure, none."""
    if count == 1:
        return [make()]
    with ThreadPoolExecutor(min(count, _AT_ONCE)) as pool:
        futures = [pool.submit(make) for _ in range(count)]
    failed = [error for future in futures if (error := future.exception()) is not None]
    if not failed:
        return [future.result() for future in futures]
    for future in futures:
        if future.exception() is None:
            future.result().close()
    raise failed[0]

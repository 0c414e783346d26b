"""The docker backend: sandboxes in containers of a daemon, driven through a server inside and not through its API."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, get_args

from forkgym.errors import ConfigError
from forkgym.sandboxes import state
from forkgym.sandboxes.base import Capabilities, Limits, Sandbox, SandboxSpec, Snapshot
from forkgym.sandboxes.docker import commits, images
from forkgym.sandboxes.docker.commits import CommitSandbox
from forkgym.sandboxes.docker.container import LABEL, Config, Container, HostContainer, is_owned, labelled
from forkgym.sandboxes.docker.distant import DistantContainer, reap_toolboxes
from forkgym.sandboxes.docker.engine import PATIENCE, Engine
from forkgym.sandboxes.docker.overlay import NoOverlayError, OverlaySandbox
from forkgym.sandboxes.docker.sandbox import BACKEND, Host
from forkgym.sandboxes.docker.spares import Spares
from forkgym.sandboxes.local import cgroups, cleanup, launcher, snapshots
from forkgym.sandboxes.local.snapshots import Frozen

Fork = Literal["auto", "overlay", "commit"]
Via = Literal["auto", "socket", "api"]
_NOTES = (
    "a fork copies files and each shell's cwd, variables, functions and aliases; "
    "not running processes, /dev/shm or sockets",
    "files that sandboxes write on a state directory in memory count towards their memory",
)
_COMMIT_NOTES = ("a fork commits the container and starts the children from the image: some tenths of a second",)
_SOCKET_NOTES = ('commands with user="root" need an owner who is root on the daemon\'s host',)
_API_NOTES = (
    "what is inside is reached over the daemon's API: some milliseconds a command, and as root some tenths of a second",
)


class DockerBackend:
    """See ``forkgym.sandboxes.base.Backend``.

    ``fork``: "overlay" (milliseconds; needs root and the daemon on this host, and Linux 6.15), "commit" (by images of
    the daemon), or "auto", the first of them that works here; ``capabilities().tier`` says which one it is.
    ``url``: of the daemon instead of ``DOCKER_HOST``. ``via``: how to speak with what is inside; over a "socket" that
    is shared with it, which needs a daemon on this host, over the "api" of the daemon, wherever that is (slower, and
    forks are commits), or "auto", by where the daemon is. ``patience``: seconds to wait for an answer of the
    daemon. ``spares``: the most containers that are kept ready, once a sandbox was forked
    into as many.
    """

    name = BACKEND
    _swept: frozenset[str | None] = frozenset()
    _sweeping = threading.Lock()

    def __init__(
        self,
        *,
        fork: Fork = "auto",
        url: str | None = None,
        via: Via = "auto",
        patience: float = PATIENCE,
        spares: int = 8,
    ) -> None:
        if fork not in get_args(Fork):
            raise ConfigError(f"fork is {fork!r}; allowed: {', '.join(get_args(Fork))}")
        if via not in get_args(Via):
            raise ConfigError(f"via is {via!r}; allowed: {', '.join(get_args(Via))}")
        if (fork, via) == ("overlay", "api"):
            raise ConfigError("fork is 'overlay', but via='api' reaches into no container: use fork='commit'")
        if not patience > 0 or spares < 0:
            raise ConfigError(f"patience={patience!r} and spares={spares!r} cannot be negative, nor patience 0")
        self._fork: Fork = fork
        self._url = url
        self._engine = Engine(url, patience)
        self._via: Via = via
        self._spares = Spares(self._start, spares)

    def create(self, spec: SandboxSpec, snapshot: str | None = None) -> Sandbox:
        """See ``Backend.create``."""
        host = self._host()
        box = self._fresh(host, spec) if snapshot is None else self._restore(host, spec, snapshot)
        self._sweep_once()
        return box

    def capabilities(self) -> Capabilities:
        """See ``Backend.capabilities``. Starts a sandbox to know."""
        # The image "host" is of this machine; any other will do as well.
        spec = SandboxSpec() if self._engine.local else SandboxSpec(image=images.empty(self._engine))
        with self.create(spec) as box:
            overlay = isinstance(box, OverlaySandbox)
        held, missing = self._limits(overlay)
        return Capabilities(
            backend=self.name,
            tier="overlay" if overlay else "commit",
            isolation="container",
            fork=True,
            limits=held,
            unenforced=missing,
            notes=_NOTES if overlay else _NOTES[:1] + _COMMIT_NOTES + (_API_NOTES if self._distant else _SOCKET_NOTES),
        )

    def snapshots(self) -> list[Snapshot]:
        """See ``Backend.snapshots``."""
        return [*snapshots.listed(state.state_dir(), self.name), *commits.listed(self._engine)]

    def delete_snapshot(self, snapshot_id: str) -> None:
        """See ``Backend.delete_snapshot``."""
        if commits.load(self._engine, snapshot_id) is not None:
            commits.delete(self._engine, snapshot_id)
        else:
            snapshots.delete(state.state_dir(), snapshot_id, self.name)

    def gc(self) -> Mapping[str, int]:
        """See ``Backend.gc``."""
        cleanup.wait()
        return self._reap()

    @property
    def _distant(self) -> bool:
        return self._via == "api" or (self._via == "auto" and not self._engine.local)

    def _start(self, config: Config) -> Container:
        kind = DistantContainer if self._distant else HostContainer
        return kind(self._engine, state.state_dir(), config)

    def _fresh(self, host: Host, spec: SandboxSpec) -> Sandbox:
        commits_only = self._distant or not launcher.is_privileged()
        if self._fork == "commit" or (self._fork == "auto" and commits_only):
            return CommitSandbox(host, spec, Frozen())
        try:
            return OverlaySandbox(host, spec, Frozen())
        except NoOverlayError:
            if self._fork != "auto":
                raise
            self._fork = "commit"
            return CommitSandbox(host, spec, Frozen())

    def _restore(self, host: Host, spec: SandboxSpec, snapshot: str) -> Sandbox:
        """As what it was taken of: only an overlay can go on from the layers of one."""
        frozen = commits.load(self._engine, snapshot)
        kind = OverlaySandbox if frozen is None else CommitSandbox
        frozen = frozen or snapshots.load(host.root, snapshot, self.name)
        return kind(host, replace(spec, image=frozen.image), frozen)

    def _host(self) -> Host:
        return Host(self._engine, state.state_dir(), self._spares, self._distant)

    def _limits(self, overlay: bool) -> tuple[dict[str, str], dict[str, str]]:
        """How each limit is held, and why one is not."""
        info, held, missing = self._engine.info(), dict[str, str](), dict[str, str]()
        for limit, flag in (("memory", "MemoryLimit"), ("pids", "PidsLimit"), ("cpu", "CpuCfsQuota")):
            if info.get(flag):
                held[limit] = f"control group, version {info.get('CgroupVersion', '1')}"
            else:
                missing[limit] = "the daemon's kernel has no such control group"
        whole, _ = cgroups.describe(Limits(wall=1.0))
        held["open_files"] = whole["open_files"]
        if overlay:
            return held | {name: whole[name] for name in ("disk", "wall")}, missing
        missing["disk"] = "no quota for the whole sandbox; each file is held by RLIMIT_FSIZE"
        if self._distant:
            held["wall"] = "the first process ends the sandbox"
        else:
            missing["wall"] = "only overlays hold it; with commits it is refused"
        return held, missing

    def _reap(self) -> Mapping[str, int]:
        removed = self._engine.remove_lost()
        for name, labels in self._engine.containers(LABEL):
            about = labelled(labels)
            if about.get("kind") == "box" and not is_owned(about):
                removed += self._engine.remove(name)
        removed += reap_toolboxes(self._engine)
        return {**state.reap(state.state_dir()), "containers": removed, "images": commits.reap(self._engine)}

    def _sweep_once(self) -> None:
        """What a crashed process left is removed in the background at the first start of the next."""
        with DockerBackend._sweeping:
            if self._url not in DockerBackend._swept:
                DockerBackend._swept |= {self._url}
                cleanup.later(self._reap)

"""A sandbox whose state is kept as images of the daemon: slower than an overlay, but it works with any daemon.

A fork commits the container once and starts the children from the new image, which goes with the last of them. Chains
of commits are flattened before the daemon's limit of layers.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import threading
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from forkgym.errors import ConfigError
from forkgym.sandboxes.base import Background, Sandbox, SandboxSpec, Snapshot
from forkgym.sandboxes.docker import images
from forkgym.sandboxes.docker.container import LABEL, Config, is_owned, label, labelled
from forkgym.sandboxes.docker.engine import Engine
from forkgym.sandboxes.docker.sandbox import BACKEND, DockerSandbox, Host, directories, start_all
from forkgym.sandboxes.errors import ForkBusyError, SandboxError, SandboxLimitError, SnapshotError
from forkgym.sandboxes.local import cleanup
from forkgym.sandboxes.local.disk import new_id
from forkgym.sandboxes.local.snapshots import Frozen
from forkgym.sandboxes.owner.checks import check_fork, check_text
from forkgym.sandboxes.owner.shell import PersistentShell, ShellState

_FORKS, _SNAPSHOTS = "forkgym-fork", "forkgym-snapshot"
_FLATTEN_AT = 100  # layers; the daemon takes 125
_WHITEOUT = ".wh."  # in an image, the mark of a deleted file
_TOO_LONG = os.strerror(errno.ENAMETOOLONG).lower()  # as the daemon says it
_STOP_PATIENCE = 1.0  # seconds until every process is stopped


class CommitSandbox(DockerSandbox):
    """Frozen by committing its container. ``origin.layers`` holds the one image that it starts from, if any."""

    def __init__(self, host: Host, spec: SandboxSpec, origin: Frozen) -> None:
        if spec.limits.wall is not None and not host.distant:
            raise SandboxLimitError(
                "the limit 'wall' is not held where forks are commits, except with via='api': leave it out"
            )
        if spec.mounts and not host.engine.local:
            raise ConfigError(
                f"mounts show directories of this machine, but the docker daemon is on another one: {spec.mounts[0]}; "
                "upload what it holds"
            )
        base = images.for_commit(host.engine, host.root, spec.image)
        self._image = origin.layers[0] if origin.layers else base.image
        spec = replace(spec, image=base.ref)  # forks and snapshots stand on this very image
        made = () if origin.layers else directories(spec)
        self._state_lock = threading.Lock()
        _uses.add(self._image)
        try:
            mounts = (*base.mounts, *spec.mounts)
            super().__init__(host, spec, origin, Config(self._image, spec.limits, spec.user, mounts, made))
        except BaseException:
            _uses.drop(host.engine, self._image)
            raise

    def snapshot(self, label: str = "") -> Snapshot:
        """See ``Sandbox.snapshot``."""
        check_text("label", label)
        snapshot = Snapshot(new_id(), BACKEND, label)
        with self._frozen("copy", _SNAPSHOTS, snapshot.id, {"title": label}):
            return snapshot

    def fork(self, n: int = 1, *, background: Background = "copy") -> list[Sandbox]:
        """See ``Sandbox.fork``."""
        check_fork(n, background)
        with self._frozen(background, _FORKS, new_id(), {}) as frozen:
            return list(start_all(lambda: CommitSandbox(self._host, self.spec, frozen), n))

    @contextlib.contextmanager
    def _frozen(self, background: Background, repository: str, tag: str, more: Mapping[str, str]) -> Generator[Frozen]:
        """The present state as an image, which is in use at least until the end of the block."""
        self._require_alive()
        image = f"{repository}:{tag}"
        lineage = (*self.lineage, self.id)
        with self._lock:
            shells = list(self._shells.values())
        with self._state_lock, self._quiet(shells, background):
            states = self._shell_states()
            about: dict[str, Any] = {"image": self.spec.image, "lineage": lineage, **more}
            about["shells"] = {name: asdict(shell) for name, shell in states.items()}
            self._commit(repository, tag, label(repository, **about))
        _uses.add(image)
        try:
            yield Frozen((image,), states, lineage, self.spec.image)
        finally:
            _uses.drop(self._host.engine, image)

    def _commit(self, repository: str, tag: str, labels: Mapping[str, str]) -> None:
        engine, name = self._host.engine, self._container.name
        try:
            changes = engine.changes(name)
        except SandboxError as error:
            if _TOO_LONG not in str(error):
                raise
            raise SandboxError(
                "images of a daemon cannot hold paths of more than 4095 bytes: remove a tree of such a depth, or fork "
                "by overlay"
            ) from error
        lost = [path for path in changes if posixpath.basename(path).startswith(_WHITEOUT)]
        if lost:
            raise SandboxError(
                f"images of a daemon cannot hold a name that begins with {_WHITEOUT!r}, such as {lost[0]}: "
                "rename it, or fork by overlay"
            )
        if engine.layers(self._image) < _FLATTEN_AT:
            engine.commit(name, repository, tag, labels)
        else:
            engine.import_image(engine.export(name), repository, tag, labels)

    @contextlib.contextmanager
    def _quiet(self, shells: Sequence[PersistentShell], background: Background) -> Generator[None]:
        """Stop what runs inside; it goes on afterwards, or is killed first if that is asked for."""
        held = [shell for shell in shells if shell.hold()]
        idle = [name for shell in held if (name := shell.session_name) is not None]
        try:
            answer, _ = self.ask({"op": "quiesce", "idle": idle, "patience": _STOP_PATIENCE})
            try:
                if answer["others"] and background != "copy" and self.ask({"op": "writers"})[0]["writers"]:
                    if background == "fail":
                        raise ForkBusyError(
                            "a process in the sandbox writes to a file; wait, or fork with background='copy' or 'kill'"
                        )
                    self.ask({"op": "kill_others", "idle": idle})
                yield
            finally:
                self.ask({"op": "resume"})
        finally:
            for shell in held:
                shell.release()

    def _discard(self) -> None:
        super()._discard()
        cleanup.later(lambda: _uses.drop(self._host.engine, self._image))


class _Uses:
    """Which images of forks and snapshots the sandboxes of this process stand on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, image: str) -> None:
        """One more stands on it."""
        with self._lock:
            self._counts[image] += 1

    def drop(self, engine: Engine, image: str) -> None:
        """One fewer; the image of a fork goes with the last, that of a deleted snapshot too."""
        with self._lock:
            self._counts[image] -= 1
            last = not self._counts[image]
        if last and image.startswith(_FORKS):
            engine.remove_image(image)
        elif last and image.startswith(_SNAPSHOTS):
            reap(engine)


def load(engine: Engine, snapshot_id: str) -> Frozen | None:
    """The state that a snapshot keeps; ``None`` if the daemon has none of this id."""
    for tag, about in _all(engine, _SNAPSHOTS):
        if tag == f"{_SNAPSHOTS}:{snapshot_id}":
            shells = {name: ShellState(**shell) for name, shell in about["shells"].items()}
            return Frozen((tag,), shells, tuple(about["lineage"]), about["image"])
    return None


def listed(engine: Engine) -> list[Snapshot]:
    """All snapshots that the daemon keeps."""
    return [Snapshot(tag.partition(":")[2], BACKEND, about["title"]) for tag, about in _all(engine, _SNAPSHOTS)]


def delete(engine: Engine, snapshot_id: str) -> None:
    """Remove a snapshot; sandboxes that stand on it go on. Raises ``SnapshotError``."""
    if load(engine, snapshot_id) is None:
        raise SnapshotError(f"the docker daemon has no snapshot {snapshot_id!r}")
    engine.remove_image(f"{_SNAPSHOTS}:{snapshot_id}")


def reap(engine: Engine) -> int:
    """Remove the images of forks whose maker is gone, and those that have lost their name; returns how many."""
    removed = 0
    for name, about in _ours(engine):
        dead = about.get("kind") == _FORKS and not is_owned(about)
        if dead or not name.startswith(("forkgym:", _FORKS, _SNAPSHOTS)):
            removed += engine.remove_image(name)
    return removed


def _all(engine: Engine, kind: str) -> list[tuple[str, dict[str, Any]]]:
    return [(name, about) for name, about in _ours(engine) if name.startswith(f"{kind}:") and about["kind"] == kind]


def _ours(engine: Engine) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name (or id, if it lost its name) and label of every image that any process made this way."""
    for names, labels in engine.images(LABEL):
        about = labelled(labels)
        if about:
            yield from ((name, about) for name in names)


_uses = _Uses()

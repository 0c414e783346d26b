"""From a recipe to an image: each step runs in a sandbox over the layers below it, and what it wrote becomes a layer.

A layer is found again by the hash of its parent, the step, and the content of the files that the step copies. So equal
steps are built once, and whatever stands above a changed one is built anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import stat
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from forkgym.sandboxes import state
from forkgym.sandboxes.base import Limits, Mount, SandboxSpec
from forkgym.sandboxes.errors import ImageError, RecipeError, SandboxError
from forkgym.sandboxes.images import debian, downloads, packing, recipe
from forkgym.sandboxes.images.recipe import Recipe, Step
from forkgym.sandboxes.images.steps import DELIVERY, command, open_up, perform
from forkgym.sandboxes.images.store import Chain, Store, library, open_store
from forkgym.sandboxes.local import image, launcher
from forkgym.sandboxes.local.backend import LocalBackend
from forkgym.sandboxes.local.mounts import VOLUMES
from forkgym.sandboxes.local.sandbox import LocalSandbox
from forkgym.sandboxes.local.squash import squash

State = Literal["cached", "building", "built"]
Report = Callable[[str, State], None]
_FORMAT = 1  # part of each key: raise it when steps do something else than before
_LIMITS = Limits(memory=None, pids=4096, disk=None, open_files=4096)


def build(source: Recipe, report: Report = lambda title, state: None) -> Chain:
    """Build an image, or find its layers built already, and give it the recipe's name.

    ``report`` is called with each step's title as it is found, begun and done. Raises ``ImageError``, naming the step;
    then nothing half-made is left, and the finished layers below serve the next try.
    """
    shipped = library().get(source.name)
    if shipped is not None and shipped.parent != source.folder:
        raise RecipeError(f"the name {source.name!r} belongs to a recipe of the library; choose another")
    store = open_store(state.state_dir())
    try:
        with store.held() as lease:
            return store.chain(source.name, _Builder(store, lease, report).image(source))
    except OSError as error:
        raise error if isinstance(error, SandboxError) else ImageError(f"{source.name}: {error}") from error


class _Builder:
    """One run. The lease keeps pruning away from layers that no name or sandbox refers to yet."""

    def __init__(self, store: Store, lease: state.Lease, report: Report) -> None:
        self._store = store
        self._lease = lease
        self._report = report
        self._held: list[str] = []

    def image(self, source: Recipe) -> str:
        """Build all layers; the id of the topmost."""
        top = self._base(source)
        for step in source.steps:
            try:
                top = self._step(top, step, source.folder)
            except RecipeError:
                raise
            except (SandboxError, OSError) as error:
                raise ImageError(f"{step.where}: the step `{step.title}` failed: {error}") from error
        if not self._store.has(top):
            raise RecipeError(f"{source.name}: a recipe over 'host' needs at least one step")
        self._store.name(source.name, top, source.digest)
        return top

    def _base(self, source: Recipe) -> str:
        if source.base == "debian":
            return self._debian()
        if source.base == image.HOST:
            return image.host_id()
        if source.base in library():
            return self.image(recipe.load(source.base))
        return self._store.find(source.base).layers[0].id

    def _step(self, parent: str, step: Step, folder: Path) -> str:
        if step.kind == "apt":
            _require_root()
        with self._store.scratch() as scratch:
            delivery = _delivery(scratch)
            archive = (scratch if step.kind == "toolbox" else delivery) / "files.tar"
            content = ""
            if step.kind in ("copy", "toolbox"):
                found = packing.sources(step, folder)
                content = packing.pack(
                    [(path, target if step.kind == "copy" else "") for path, target in found], archive, step.where
                )
            made = scratch / "layer"

            def make() -> None:
                if step.kind == "toolbox":
                    _extract(archive, made / "tool")
                else:
                    self._capture(parent, delivery, made, lambda box: perform(step, box, delivery))

            key = _key(parent, step.kind, step.value, content)
            target = str(step.value[0][1]) if step.kind == "toolbox" else None
            return self._layer(key, made, make, parent=parent, step=step.title, target=target)

    def _debian(self) -> str:
        """The essential packages, as one layer without a parent."""
        _require_root()
        release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
        title = f"debian: {release} {downloads.architecture()}"
        key = _key(None, "debian", title, debian.UNPACK + debian.CONFIGURE)
        with self._store.scratch() as scratch:
            made = scratch / "layer"
            try:
                return self._layer(
                    key, made, lambda: self._bootstrap(scratch, made), parent=None, step=title, target=None
                )
            except (SandboxError, OSError) as error:
                raise ImageError(f"the ground `{title}` cannot be made: {error}") from error

    def _bootstrap(self, scratch: Path, made: Path) -> None:
        delivery = _delivery(scratch)
        downloads.debian(downloads.ESSENTIAL, Path(os.devnull), delivery)
        open_up(delivery)
        self._capture(image.host_id(), delivery, scratch / "host", lambda box: _script(box, debian.UNPACK))
        tree, first = scratch / "host" / "root" / debian.TREE, scratch / "unpacked"
        first.mkdir()
        (tree / "usr").rename(first / "usr")
        (tree / "usr").mkdir()
        tree.rename(first / "root")
        unpacked = uuid.uuid4().hex[:16]  # known to nobody but us
        self._hold(unpacked)
        self._store.add(unpacked, first, parent=None, step="unpacked", size=0, target=None)
        try:
            configured = scratch / "configured"
            self._capture(unpacked, delivery, configured, lambda box: _script(box, debian.CONFIGURE))
            _make_volumes(made)
            lower = self._store.chain("debian", unpacked).layers[0].path
            squash([str(configured), str(lower)], {volume: [] for volume in VOLUMES}, str(made), privileged=True)
        finally:
            self._store.remove(unpacked)

    def _layer(self, layer: str, made: Path, make: Callable[[], None], *, step: str, **meta: str | None) -> str:
        """Find one layer, or have ``make`` write it at ``made``; nobody else makes it at the same time."""
        self._hold(layer)
        with self._store.building(layer):
            if self._store.has(layer):
                self._report(step, "cached")
                return layer
            self._report(step, "building")
            make()
            size = _tidy(made, bottom=meta["parent"] is None)
            self._store.add(layer, made, step=step, size=size, **meta)
        self._report(step, "built")
        return layer

    def _hold(self, layer: str) -> None:
        self._held.append(layer)
        self._lease.update(self._held)

    def _capture(self, parent: str, delivery: Path, made: Path, change: Callable[[LocalSandbox], object]) -> None:
        """Write at ``made`` what ``change`` does to a sandbox over ``parent``."""
        ref = image.HOST if parent.startswith("host-") else f"build@{parent}"
        mounts = (Mount(str(delivery), DELIVERY),)
        _make_volumes(made)
        with LocalBackend().create(SandboxSpec(ref, _LIMITS, user="root", workdir="/", mounts=mounts)) as box:
            change(box)
            with box.written() as layers:
                for layer in layers:
                    for volume in VOLUMES:
                        _copy_tree(layer / volume, made / volume)


def _script(box: LocalSandbox, script: str) -> str:
    return command(box, ["bash", "-c", script])


def _require_root() -> None:
    if not launcher.is_privileged():
        raise ImageError(
            "Debian packages need many user ids, so only root can build: run this as root, or use `from: host`"
        )


def _delivery(scratch: Path) -> Path:
    path = scratch / "delivery"
    path.mkdir()
    path.chmod(0o755)
    return path


def _key(parent: str | None, *said: object) -> str:
    return hashlib.sha256(json.dumps([_FORMAT, parent, said]).encode()).hexdigest()[:16]


def _make_volumes(made: Path) -> None:
    made.mkdir()
    for volume in VOLUMES:
        (made / volume).mkdir()
        (made / volume).chmod(0o755)


def _copy_tree(source: Path, target: Path) -> None:
    _host_tool(["cp", "-a", "--", f"{source}/.", str(target)])


def _host_tool(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise ImageError(f"the layer could not be kept: {done.stderr.strip()[-300:]}")


def _extract(archive: Path, target: Path) -> None:
    """Lay a toolbox out. Every user of every sandbox may read it: it is shown as it lies here."""
    target.mkdir(parents=True)
    _host_tool(["tar", "--extract", "--no-same-owner", f"--file={archive}", f"--directory={target}"])
    open_up(target)


def _tidy(layer: Path, bottom: bool) -> int:
    """Drop setuid and setgid bits of files, and at the bottom marks that hide nothing; returns the size in bytes."""
    blocks = 0
    for folder, _, files in os.walk(layer):
        for name in files:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            blocks += status.st_blocks
            if stat.S_ISREG(status.st_mode) and status.st_mode & 0o6000:
                os.chmod(path, stat.S_IMODE(status.st_mode) & ~0o6000)
            if bottom and stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
                os.unlink(path)
    return blocks * 512

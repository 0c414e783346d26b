"""Built images on disk: immutable layers, each with its parent, and names that stand for the topmost one.

    <store>/layers/<id>/layer.json     parent, step, bytes, and for a toolbox the place where it is shown
    <store>/layers/<id>/root, usr      what the layer adds to each volume, in the overlay's own terms
    <store>/layers/<id>/tool           a toolbox: shown read-only, never written to
    <store>/names/<name>.json          {"top": id, ...}: the layer that a name stands for
    <store>/locks/<id>                 held by who builds the layer
    <store>/scratch/<random>@<owner>/  work of a living process, or garbage

A reference is ``name``, or ``name@id`` for the very layer that a sandbox began on. The lease of a sandbox names the
layers of its image, as it names its own; so nothing in use is ever removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import time
import uuid
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forkgym.sandboxes import state
from forkgym.sandboxes.errors import ImageError

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
RESERVED = ("host", "debian")
_ID = re.compile(r"[0-9a-f]{16}")
_META = "layer.json"


@dataclass(frozen=True)
class Layer:
    """One layer. ``parent`` is the id of the layer below, a ``host-…`` for this machine's system, or ``None``.

    ``target``: where a toolbox is shown; ``None`` for an ordinary layer. ``size`` is in bytes.
    """

    id: str
    path: Path
    parent: str | None
    step: str
    size: int
    target: str | None = None


@dataclass(frozen=True)
class Chain:
    """The layers of one image, topmost first, and the ``host-…`` that they stand on, if any."""

    name: str
    layers: tuple[Layer, ...]
    host: str | None

    @property
    def ref(self) -> str:
        """The reference that stays the same when the name gets a newer image."""
        return f"{self.name}@{self.layers[0].id}"


class Store:
    """The images that sandboxes below one state directory can use."""

    def __init__(self, state_root: Path) -> None:
        self.state_root = state_root
        self.root = state.large_dir(state_root) / "images"
        for part in ("layers", "names", "locks", "scratch"):
            (self.root / part).mkdir(mode=0o700, parents=True, exist_ok=True)

    def find(self, ref: str) -> Chain:
        """The image of this name or ``name@id``. Raises ``ImageError``."""
        name, at, pinned = ref.partition("@")
        top = pinned if at else self._top(name)
        if not NAME.fullmatch(name) or not _ID.fullmatch(top):
            raise ImageError(self._unknown(ref))
        return self.chain(name, top)

    def chain(self, name: str, top: str | None) -> Chain:
        """The layers from ``top`` down. Raises ``ImageError`` if one is gone."""
        layers: list[Layer] = []
        while top is not None and not top.startswith("host-"):
            layers.append(self._layer(name, top))
            top = layers[-1].parent
        return Chain(name, tuple(layers), top)

    def has(self, layer: str) -> bool:
        """True once the layer is complete."""
        return (self.root / "layers" / layer / _META).is_file()

    def names(self) -> list[str]:
        """The names of all built images, sorted."""
        return sorted(path.stem for path in (self.root / "names").glob("*.json"))

    def record(self, name: str) -> dict[str, Any] | None:
        """What is known of a name; ``None`` if it was never built."""
        return state.read_json(self.root / "names" / f"{name}.json") if NAME.fullmatch(name) else None

    def name(self, name: str, top: str, recipe: str) -> None:
        """From now on ``name`` stands for the layer ``top``. ``recipe`` is the digest of what it was built from."""
        record = {"top": top, "recipe": recipe, "built": time.time()}
        state.write_json(self.root / "names" / f"{name}.json", record)

    def forget(self, name: str) -> None:
        """Take the name away; its layers go with the next pruning if nothing else needs them."""
        (self.root / "names" / f"{name}.json").unlink(missing_ok=True)

    def touch(self, layer: str) -> None:
        """Note that an image with this topmost layer is used now."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.root / "layers" / layer / _META)

    def last_used(self, layer: Layer) -> float:
        """When an image with this topmost layer was last used or built, in seconds since 1970."""
        return (layer.path / _META).stat().st_mtime

    @contextlib.contextmanager
    def building(self, layer: str) -> Generator[None]:
        """Be the only one who builds this layer, among threads and processes; waits for another builder."""
        path = self.root / "locks" / layer
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            # Who waits for this file finds the layer built; after a failure two may build it, and one result stays.
            path.unlink(missing_ok=True)
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)

    @contextlib.contextmanager
    def held(self, layers: Iterable[str] = ()) -> Generator[state.Lease]:
        """A lease that keeps layers from being pruned; it may be given others later."""
        lease = state.Lease.take(self.state_root / "boxes", f"images-{uuid.uuid4().hex[:12]}", layers)
        try:
            yield lease
        finally:
            lease.release()

    @contextlib.contextmanager
    def scratch(self) -> Generator[Path]:
        """A directory on the store's file system, gone afterwards; after a crash, with the next pruning."""
        path = self.root / "scratch" / f"{uuid.uuid4().hex}@{state.Owner.current().tag()}"
        path.mkdir(mode=0o700)
        try:
            yield path
        finally:
            state.remove_tree(path)

    def add(self, layer: str, made: Path, **meta: Any) -> None:
        """Put a finished layer directory in its place, at once. Another builder's equal one stays."""
        state.write_json(made / _META, meta)
        try:
            made.rename(self.root / "layers" / layer)
        except OSError:
            if not self.has(layer):
                raise

    def remove(self, layer: str) -> None:
        """Remove a layer that nobody else knows."""
        state.remove_tree(self._to_scratch(self.root / "layers" / layer))

    def prune(self, unused_names: bool = False) -> dict[str, int]:
        """Remove layers that no name, sandbox or snapshot needs, and what crashed builds left; counts by kind.

        ``unused_names`` also takes away the names of images that no sandbox or snapshot uses.
        """
        names = 0
        with state.locked(self.state_root, exclusive=True):
            used = set(state.users(self.state_root))
            for name in self.names() if unused_names else []:
                if self._top(name) not in used:
                    self.forget(name)
                    names += 1
            keep = self._needed([*used, *map(self._top, self.names())])
            gone = [self._to_scratch(path) for path in (self.root / "layers").iterdir() if path.name not in keep]
            # Systems of this machine as they were: made again in a moment if one is wanted after all.
            systems = [path for path in (self.state_root / "images").glob("host-*") if path.name not in used]
            for path in systems:
                state.discard(path)
        for path in gone:
            state.remove_tree(path)
        return {"names": names, "layers": len(gone), "systems": len(systems), "builds": self.sweep()}

    def sweep(self) -> int:
        """Remove what builds left whose process is gone; returns how many."""
        for path in (self.root / "locks").iterdir():
            with contextlib.suppress(OSError), path.open("rb") as file:  # held by a living builder, or just gone
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
        left = [path for path in (self.root / "scratch").iterdir() if _abandoned(path)]
        for path in left:
            state.remove_tree(path)
        return len(left)

    def _needed(self, tops: Iterable[str]) -> set[str]:
        needed: set[str] = set()
        for top in tops:
            layer: str | None = top
            while layer and layer not in needed and self.has(layer):
                needed.add(layer)
                layer = self._layer(layer, layer).parent
        return needed

    def _top(self, name: str) -> str:
        return str((self.record(name) or {}).get("top", ""))

    def _layer(self, name: str, layer: str) -> Layer:
        path = self.root / "layers" / layer
        meta = state.read_json(path / _META)
        if meta is None:
            raise ImageError(
                f"the image {name!r} lost its layer {layer} in {self.root}; build it again: forkgym images build {name}"
            )
        return Layer(layer, path, meta["parent"], meta["step"], meta["size"], meta.get("target"))

    def _to_scratch(self, path: Path) -> Path:
        return path.rename(self.root / "scratch" / f"{uuid.uuid4().hex}@{state.Owner.current().tag()}")

    def _unknown(self, ref: str) -> str:
        known = ", ".join(["host", *self.names()])
        name = ref.partition("@")[0]
        if name in library():
            return f"the image {ref!r} is not built yet; build it once: forkgym images build {name}. Built: {known}"
        return (
            f"no image {ref!r}; built: {known}. Build one from a recipe: forkgym images build "
            f"{{{'|'.join(library())}}} or a file of yours, ./{name}.yaml"
        )


@functools.cache
def open_store(state_root: Path) -> Store:
    """The store that belongs to a state directory."""
    return Store(state_root)


def library() -> dict[str, Path]:
    """The recipes that come with ForkGym, by name."""
    return {path.stem: path for path in sorted(Path(__file__).with_name("library").glob("*.yaml"))}


def _abandoned(path: Path) -> bool:
    owner = state.Owner.from_tag(path.name.partition("@")[2])
    return owner is None or not owner.alive()

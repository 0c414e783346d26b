"""The directories of one sandbox: its writable layer, the frozen ones below, and how the one becomes the other.

A layer directory holds, for each volume, a part ``<volume>`` and the overlay's work directory ``<volume>.work``.
``state.py`` keeps account of who stands on which layer.
"""

from __future__ import annotations

import itertools
import math
import os
import stat
import threading
import uuid
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from forkgym.sandboxes import state
from forkgym.sandboxes.base import SandboxSpec
from forkgym.sandboxes.errors import SandboxError, SandboxLimitError, SnapshotError
from forkgym.sandboxes.local import cleanup, launcher, measuring, warden
from forkgym.sandboxes.local.image import Image
from forkgym.sandboxes.local.mounts import VOLUMES
from forkgym.sandboxes.owner.reply import Refused, ask

_MOST_LAYERS = 480  # overlayfs takes 500
_MERGE_AT = 32
_COPY_PATIENCE = 600.0  # seconds, for as many bytes as a sandbox may hold


def new_id() -> str:
    """An id for a layer, a sandbox or a snapshot."""
    return uuid.uuid4().hex[:16]


class _Uses:
    """Which layers the sandboxes of this process refer to, so that the state directory is searched only when the last
    of them lets go of a layer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_box: dict[str, set[str]] = {}
        self._counts: Counter[str] = Counter()

    def refer(self, box: str, layers: Iterable[str]) -> set[str]:
        """From now on ``box`` refers to these layers; returns those that nobody here refers to any more."""
        with self._lock:
            old, new = self._by_box.pop(box, set[str]()), set(layers)
            if new:
                self._by_box[box] = new
            self._counts.update(new - old)
            self._counts.subtract(old - new)
            freed = {layer for layer in old - new if not self._counts[layer]}
            for layer in freed:
                del self._counts[layer]
            return freed


class Disk:
    """What one sandbox has on disk."""

    def __init__(self, root: Path, box: str, image: Image, spec: SandboxSpec, layers: tuple[str, ...]) -> None:
        self._root = root
        self._image = image
        self._spec = spec
        self._layers = layers
        self._mounted = layers  # differs from `_layers` between a merge and the next exchange of the root
        self._pending: tuple[str, ...] = ()
        self._merged: str | None = None
        self._merging = False
        self._lock = threading.RLock()
        self._generation = 0
        self._box = box
        _uses.refer(box, layers)
        try:
            self._lease = state.Lease.take(root / "boxes", box, (*layers, *image.layers))
            try:
                image.require()
                self._require(layers)
                self._upper = self._make_upper(self._layer(layers[0]) if layers else None)
            except BaseException:
                self._lease.release()
                raise
        except BaseException:
            _uses.refer(box, ())
            raise

    def _require(self, layers: Iterable[str]) -> None:
        """From the lease on nobody removes these layers, but the snapshot may have been deleted just before."""
        for layer in layers:
            if not self._layer(layer).is_dir():
                raise SnapshotError(f"layer {layer} is gone: its snapshot was deleted meanwhile")

    def message(self) -> dict[str, Any]:
        """The part of a request that says what to mount."""
        return self._message([self._upper])

    def is_clean(self) -> bool:
        """True if nothing was written since the last freeze."""
        return not any(os.listdir(self._upper / volume) for volume in VOLUMES)

    def used(self) -> int | None:
        """Bytes that the writable layer occupies; ``None`` for a tree that cannot be walked, such as a very deep one.

        What was written before the last freeze belongs to frozen layers.
        """
        try:
            return sum(measuring.named(str(self._upper / volume)) for volume in VOLUMES)
        except OSError:
            return None

    def was_overrun(self, begin: float, end: float) -> bool:
        """True if the warden found more here than allowed, and killed what ran, between these seconds since boot."""
        try:
            noted = (self._lease.path / warden.OVERRUNS).read_bytes()
        except OSError:
            return False
        moments = [moment for (moment,) in warden.MOMENT.iter_unpack(noted)]
        killings = itertools.zip_longest(moments[::2], moments[1::2], fillvalue=math.inf)
        return any(first <= end and last >= begin for first, last in killings)

    def cause(self) -> str:
        """Why the warden ended the sandbox; empty if it did not."""
        try:
            return (self._lease.path / warden.CAUSE).read_text()
        except OSError:
            return ""

    @property
    def layers(self) -> tuple[str, ...]:
        """The frozen layers, topmost first."""
        return self._layers

    def switch(self, zygote: launcher.Zygote, pid: int, pidfd: int) -> None:
        """Freeze the writable layer and put a new one in its place, under the running sandbox.

        Raises ``Refused`` with EBUSY, and changes nothing, while a process can write to a file.
        """
        with self._lock:
            self._switch(zygote, pid, pidfd)

    def copy(self, zygote: launcher.Zygote) -> tuple[str, ...]:
        """Copy the writable layer as it is into a frozen one; returns the chain that holds the copy.

        Call ``settle`` once somebody else refers to it.
        """
        frozen = new_id()
        with self._lock:
            self._pending = (frozen,)
            self._write_lease()
            target = self._layer(frozen)
            try:
                self._make_upper(self._upper, target)
                request = {"op": "copy", "source": str(self._upper), "target": str(target)}
                ask(zygote.socket, request, patience=_COPY_PATIENCE)
            except (SandboxError, OSError):
                state.remove_tree(target)
                self.settle()
                raise
            return (frozen, *self._layers)

    def _switch(self, zygote: launcher.Zygote, pid: int, pidfd: int) -> None:
        if len(self._layers) >= _MOST_LAYERS:
            raise SandboxLimitError(f"{len(self._layers)} layers are the most that one sandbox can stand on")
        old, frozen = self._upper, new_id()
        self._pending = (frozen,)
        self._write_lease()
        upper = self._make_upper(old)
        try:
            request = {"op": "switch", "pid": pid, **self._message([upper, old])}
            ask(zygote.socket, request, [pidfd])
        except Refused:
            state.remove_tree(upper)
            self.settle()
            raise
        old.rename(self._layer(frozen))
        self._layers, self._upper, self._pending = (frozen, *self._layers), upper, ()
        self._mounted = self._layers
        self._write_lease()

    def settle(self) -> None:
        """Refer to no more than the layers this sandbox stands on."""
        with self._lock:
            if self._pending:
                self._pending = ()
                self._write_lease()

    def merge_if_long(self, zygote: launcher.Zygote) -> None:
        """Have a long chain of frozen layers replaced by one layer, in the background.

        The sandbox itself stands on the old layers until its root is next exchanged.
        """
        if len(self._layers) >= _MERGE_AT and not self._merging:
            self._merging = True
            cleanup.later(lambda: self._merge(zygote, self._layers))

    def _merge(self, zygote: launcher.Zygote, chain: tuple[str, ...]) -> None:
        merged = new_id()
        with self._lock:
            self._merged = merged
            self._write_lease()
        target = self._make_upper(self._layer(chain[0]), self._layer(merged))
        request: dict[str, Any] = {"op": "squash", "image": self._image.lowers, "target": str(target)}
        request["layers"] = [str(self._layer(layer)) for layer in chain]
        try:
            ask(zygote.socket, request, patience=_COPY_PATIENCE)
        except (SandboxError, Refused):
            # For example a renamed directory of the image: this chain stays as it is, up to the kernel's limit.
            with self._lock:
                self._merged = None
                self._write_lease()
            return
        with self._lock:
            self._layers = (*self._layers[: -len(chain)], merged)
            self._merged, self._merging = None, False
            self._write_lease()

    def release(self) -> None:
        """Remove everything that only this sandbox used. Idempotent."""
        self._lease.release()
        freed = _uses.refer(self._box, ())
        if freed:
            state.drop_layers(self._root, freed)

    def _write_lease(self) -> None:
        merged = [self._merged] if self._merged else []
        names = dict.fromkeys([*self._layers, *self._mounted, *self._pending, *merged])
        freed = _uses.refer(self._box, names)
        self._lease.update([*names, *self._image.layers])
        if freed:
            cleanup.later(lambda: state.drop_layers(self._root, freed))

    def _message(self, uppers: list[Path]) -> dict[str, Any]:
        chain = [*map(str, uppers), *(str(self._layer(layer)) for layer in self._layers)]
        binds = [*self._image.binds, *((mount.source, mount.target) for mount in self._spec.mounts)]
        return {"layers": chain, "image": self._image.lowers, "binds": binds}

    def _layer(self, layer: str) -> Path:
        return self._root / "layers" / layer

    def _make_upper(self, like: Path | None, path: Path | None = None) -> Path:
        """An empty layer directory; its top has mode and owner of the layer ``like``, as the topmost layer decides."""
        if path is None:
            path = self._lease.path / f"g{self._generation}"
            self._generation += 1
        path.mkdir(mode=0o700)
        for volume in VOLUMES:
            target = path / volume
            target.mkdir()
            (path / f"{volume}.work").mkdir(mode=0o700)
            if like is None:
                target.chmod(0o755)
                continue
            status = (like / volume).stat()
            target.chmod(stat.S_IMODE(status.st_mode))
            if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
                os.chown(target, status.st_uid, status.st_gid)
        return path


_uses = _Uses()


def _after_fork_in_child() -> None:
    global _uses
    _uses = _Uses()


os.register_at_fork(after_in_child=_after_fork_in_child)

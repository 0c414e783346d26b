"""Snapshots on disk: a record that keeps its layers until it is deleted."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from forkgym.sandboxes import state
from forkgym.sandboxes.base import Snapshot
from forkgym.sandboxes.errors import SnapshotError
from forkgym.sandboxes.local import cleanup
from forkgym.sandboxes.local.disk import new_id
from forkgym.sandboxes.owner.shell import ShellState

_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Frozen:
    """An immutable state: layer ids (topmost first), what its shells start with, and the ids of its ancestors."""

    layers: tuple[str, ...] = ()
    shells: Mapping[str, ShellState] = field(default_factory=dict[str, ShellState])
    lineage: tuple[str, ...] = ()
    image: str = "host"


def save(root: Path, frozen: Frozen, label: str, backend: str) -> Snapshot:
    """Write a snapshot's record."""
    snapshot = Snapshot(new_id(), backend, label)
    record = {
        "backend": backend,
        "label": label,
        "created": time.time(),
        "image": frozen.image,
        "layers": list(frozen.layers),
        "lineage": list(frozen.lineage),
        "shells": {name: asdict(shell) for name, shell in frozen.shells.items()},
    }
    with state.locked(root):
        state.write_json(_path(root, snapshot.id), record)
    return snapshot


def load(root: Path, snapshot_id: str, backend: str) -> Frozen:
    """Read a snapshot's record. Raises ``SnapshotError``."""
    record = _record(root, snapshot_id, backend)
    if record is None:
        known = ", ".join(snapshot.id for snapshot in listed(root, backend)[-5:]) or "none"
        raise SnapshotError(f"no snapshot {snapshot_id!r} in {root}; latest: {known}")
    missing = [layer for layer in record["layers"] if not (root / "layers" / layer).is_dir()]
    if missing:
        raise SnapshotError(f"snapshot {snapshot_id} lost its layer {missing[0]}; delete it and make a new one")
    shells = {name: ShellState(**shell) for name, shell in record["shells"].items()}
    return Frozen(tuple(record["layers"]), shells, tuple(record["lineage"]), record["image"])


def listed(root: Path, backend: str) -> list[Snapshot]:
    """All snapshots of a backend, oldest first."""
    found: list[tuple[float, Snapshot]] = []
    for path in (root / "snapshots").glob("*.json"):
        record = _record(root, path.stem, backend) if _ID.fullmatch(path.stem) else None
        if record is not None:
            found.append((record["created"], Snapshot(path.stem, backend, record["label"])))
    return [snapshot for _, snapshot in sorted(found, key=lambda pair: pair[0])]


def delete(root: Path, snapshot_id: str, backend: str) -> None:
    """Remove a snapshot, and the layers that nobody else uses. Raises ``SnapshotError``."""
    path, record = _path(root, snapshot_id), _record(root, snapshot_id, backend)
    try:
        if record is None and state.read_json(path) is not None:
            raise FileNotFoundError  # it is another backend's
        path.unlink()
    except FileNotFoundError as error:
        raise SnapshotError(f"no snapshot {snapshot_id!r} in {root}") from error
    layers = (record or {}).get("layers", [])
    if state.inside_lock():  # a finalizer deletes it
        cleanup.later(lambda: state.drop_layers(root, layers))
    else:
        state.drop_layers(root, layers)


def _record(root: Path, snapshot_id: str, backend: str) -> dict[str, Any] | None:
    """The record of a snapshot that this backend made; ``None`` if there is none."""
    record = state.read_json(_path(root, snapshot_id))
    return record if record is not None and record.get("backend", "local") == backend else None


def _path(root: Path, snapshot_id: str) -> Path:
    if not _ID.fullmatch(snapshot_id):
        raise SnapshotError(f"{snapshot_id!r} is not a snapshot id; ids are 16 hexadecimal digits")
    return root / "snapshots" / f"{snapshot_id}.json"

"""What this process has on the machine: after many sandboxes came and went it must be what it was before."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from forkgym.sandboxes.bench import baseline
from forkgym.sandboxes.state import Owner, state_dir

_PAUSE = 0.3  # seconds


@dataclass(frozen=True)
class Footprint:
    """Descendant processes, open descriptors, control groups and containers of this process; mounts and files below
    the state directory."""

    processes: int
    descriptors: int
    mounts: int
    cgroups: int
    containers: int
    files: int
    disk_bytes: int

    @classmethod
    def now(cls) -> Footprint:
        """The present one."""
        root, mine = state_dir(), f"@{Owner.current().tag()}"
        sizes = [size for folder, _, names in os.walk(root) for name in names if (size := _size(Path(folder, name)))]
        return cls(
            processes=_descendants(os.getpid()),
            descriptors=len(os.listdir("/proc/self/fd")),
            mounts=sum(f" {root}/" in line for line in Path("/proc/self/mountinfo").read_text().splitlines()),
            cgroups=sum(name.endswith(mine) for _, names, _ in os.walk("/sys/fs/cgroup") for name in names),
            containers=_containers(),
            files=len(sizes),
            disk_bytes=sum(sizes),
        )

    def more_than(self, before: Footprint) -> dict[str, int]:
        """What is there now and was not before, by kind."""
        old = asdict(before)
        return {kind: value - old[kind] for kind, value in asdict(self).items()}


def leak(cycle: Callable[[], object], cycles: int, patience: float = 20.0) -> dict[str, int]:
    """Run ``cycle`` so often; what is there afterwards and was not after the first few, by kind.

    Removal goes on in the background, so a leak counts only if it is still there after ``patience`` seconds.
    """
    for _ in range(3):
        cycle()
    before = _steady(patience)
    for _ in range(cycles):
        cycle()
    deadline = time.monotonic() + patience
    while True:
        left = Footprint.now().more_than(before)
        if all(value <= 0 for value in left.values()) or time.monotonic() > deadline:
            return left
        time.sleep(_PAUSE)


def _steady(patience: float) -> Footprint:
    """The footprint once it no longer changes."""
    deadline = time.monotonic() + patience
    last = Footprint.now()
    while True:
        time.sleep(_PAUSE)
        this = Footprint.now()
        if this == last or time.monotonic() > deadline:
            return this
        last = this


def _size(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except FileNotFoundError:
        return 0


def _containers() -> int:
    """Containers of the docker backend that this process owns; 0 where no daemon answers."""
    client = baseline.connect()
    if client is None:
        return 0
    from forkgym.sandboxes.docker.container import LABEL, labelled  # needs the SDK, which is there

    with contextlib.closing(client):
        found = [labelled(one["Labels"]) for one in client.api.containers(all=True, filters={"label": LABEL})]
    return sum(about.get("owner") == asdict(Owner.current()) for about in found)


def _descendants(pid: int) -> int:
    """How many processes have this one as an ancestor."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])

    def ours(one: int) -> bool:
        while one in parents:
            one = parents[one]
            if one == pid:
                return True
        return False

    return sum(map(ours, parents))

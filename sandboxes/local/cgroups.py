"""Control groups: memory, processes and CPU of one sandbox held by the kernel, on version 2, version 1 or both.

Groups live in a directory ``forkgym`` of our own: under the mount point for root, else under the highest ancestor of
our own group that was delegated to us. A group's name carries its owner (``<id>@<pid>.<start time>.<pid namespace>``),
so that ``reap`` can tell what a dead process left behind.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from forkgym.sandboxes.base import Limits, Usage
from forkgym.sandboxes.errors import SandboxError
from forkgym.sandboxes.state import Owner

_TOP = "forkgym"
_CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
_PERIOD = 100_000  # microseconds; the kernel's default period of the CPU bandwidth controller
_SHORTEST_QUOTA = 1_000  # microseconds; the kernel refuses less
_CLOSE_PATIENCE = 2.0  # seconds
_ROOM_BESIDE_FILES = 16 << 20  # bytes; the least that a sandbox may be limited to
_WITH_VERSION_2 = {("memory", 2): "; what fills it with files may end the sandbox, with an error that says so"}
_WITHOUT_GROUP = {"memory": "; each process is held by RLIMIT_DATA", "cpu": ""}


@dataclass(frozen=True)
class Home:
    """Where groups of one controller are made, and in which dialect (1 or 2)."""

    directory: Path
    version: int


class Group:
    """One sandbox's control group, spread over the hierarchies that hold its controllers."""

    def __init__(self, name: str, homes: Mapping[str, Home]) -> None:
        self.name = name
        self._paths = {controller: home.directory / name for controller, home in homes.items()}
        self._version = {controller: home.version for controller, home in homes.items()}
        self._limits = Limits(memory=None)

    @classmethod
    def create(cls, name: str, limits: Limits) -> Group | None:
        """A group with these limits, or ``None`` where no controller can be written by us."""
        homes, _ = find_homes()
        if not homes:
            return None
        group = cls(f"{name}@{Owner.current().tag()}", homes)
        try:
            for path in group._directories:
                path.parent.mkdir(mode=0o755, exist_ok=True)
                path.mkdir(mode=0o755, exist_ok=True)
            group._apply(limits)
        except OSError as error:
            group.close()
            raise SandboxError(f"control group {group.name}: {error}") from error
        return group

    @property
    def controllers(self) -> tuple[str, ...]:
        """The controllers that this group holds, of memory, pids, cpu and cpuacct (usage)."""
        return tuple(self._paths)

    @property
    def join_files(self) -> list[str]:
        """Files to write a process id into, each one, so that the process joins the group."""
        return [str(path / "cgroup.procs") for path in self._directories]

    @classmethod
    def of(cls, pid: int, limits: Limits) -> Group:
        """The group that a daemon made for process ``pid``, to hold these limits."""
        groups = _own_groups(_text(Path(f"/proc/{pid}/cgroup")))
        homes: dict[str, Home] = {}
        name = ""
        for mount, version, controllers in _mounts(_text(Path("/proc/self/mounts"))):
            for controller in controllers:
                path = Path(groups.get("" if version == 2 else controller, "/"))
                if path.name and controller not in homes:
                    top = (mount / path.parent.relative_to("/")).resolve()
                    homes[controller], name = Home(top, version), path.name
        group = cls(name, homes)
        group._limits = limits
        return group

    def let_go(self, pid: int) -> None:
        """Take the first thread of a process out, and with it the whole as far as memory goes; see ``serve_aside``."""
        for path in self.leave_files:
            _write(Path(path).with_name("tasks"), str(pid))

    @property
    def leave_files(self) -> list[str]:
        """Files by which a thread leaves the groups of memory and processes alone.

        Empty on version 2, where memory is held by whole processes.
        """
        if self._version.get("memory") != 1:
            return []
        ours = [self._paths[name] for name in ("memory", "pids") if self._version.get(name) == 1]
        return [str(parent / "cgroup.procs") for parent in dict.fromkeys(path.parent for path in ours)]

    def oom_kills(self) -> int:
        """How many processes the kernel killed for memory since the group was made."""
        if "memory" not in self._paths:
            return 0
        name = "memory.events" if self._version["memory"] == 2 else "memory.oom_control"
        return _table(self._paths["memory"] / name).get("oom_kill", 0)

    def make_room(self) -> None:
        """After a kill for memory: where files alone fill it (a tmpfs), let the command run that removes them."""
        if self._limits.memory is None or "memory" not in self._paths:
            return
        path, version = self._paths["memory"], self._version["memory"]
        files = _table(path / "memory.stat").get("shmem", 0)
        wanted = replace(self._limits, memory=max(self._limits.memory, files + _ROOM_BESIDE_FILES))
        steps = [(path / name, value) for name, value, _ in settings("memory", version, wanted)]
        for file, value in (*steps, *steps):  # twice: version 1 wants another order for more than for less
            with contextlib.suppress(OSError):
                _write(file, value)

    def usage(self) -> Usage:
        """CPU seconds, peak memory in bytes, and processes now; ``None`` for what is not accounted here."""
        return Usage(
            cpu_seconds=self._cpu_seconds(),
            peak_memory=self._read("memory", {1: "memory.max_usage_in_bytes", 2: "memory.peak"}),
            pids=self._read("pids", {1: "pids.current", 2: "pids.current"}),
        )

    def close(self) -> None:
        """Kill what is left inside and remove the group. Idempotent. Raises ``SandboxError`` if a process stays."""
        for path in self._directories:
            _remove(path)

    @functools.cached_property
    def _directories(self) -> list[Path]:
        return list(dict.fromkeys(self._paths.values()))

    def _apply(self, limits: Limits) -> None:
        self._limits = limits
        for controller, path in self._paths.items():
            for name, value, needed in settings(controller, self._version[controller], limits):
                if needed or (path / name).exists():
                    _write(path / name, value)

    def _cpu_seconds(self) -> float | None:
        if self._version.get("cpu") == 2:
            microseconds = _table(self._paths["cpu"] / "cpu.stat").get("usage_usec")
            return None if microseconds is None else microseconds / 1e6
        nanoseconds = self._read("cpuacct", {1: "cpuacct.usage"})
        return None if nanoseconds is None else nanoseconds / 1e9

    def _read(self, controller: str, names: Mapping[int, str]) -> int | None:
        if controller not in self._paths:
            return None
        try:
            return int((self._paths[controller] / names[self._version[controller]]).read_text())
        except (OSError, KeyError):
            return None


def settings(controller: str, version: int, limits: Limits) -> list[tuple[str, str, bool]]:
    """The (file, text, must exist) triples that hold ``limits``, in the order in which the kernel accepts them.

    Swap counts towards memory where the kernel accounts for it.
    """
    if controller == "memory" and limits.memory is not None:
        size = str(limits.memory)
        if version == 2:
            return [("memory.max", size, True), ("memory.swap.max", "0", False)]
        return [("memory.limit_in_bytes", size, True), ("memory.memsw.limit_in_bytes", size, False)]
    if controller == "pids" and limits.pids is not None:
        return [("pids.max", str(limits.pids), True)]
    if controller == "cpu" and limits.cpu is not None:
        quota = max(_SHORTEST_QUOTA, round(limits.cpu * _PERIOD))
        if version == 2:
            return [("cpu.max", f"{quota} {_PERIOD}", True)]
        return [("cpu.cfs_period_us", str(_PERIOD), True), ("cpu.cfs_quota_us", str(quota), True)]
    return []


def describe(limits: Limits) -> tuple[dict[str, str], dict[str, str]]:
    """How each given limit is held on this machine, and why each other one is not, or only in part."""
    homes, problem = find_homes()
    held: dict[str, str] = {}
    missing: dict[str, str] = {}
    for name in ("memory", "pids", "cpu"):
        if getattr(limits, name) is None:
            continue
        if name in homes:
            held[name] = f"cgroup v{homes[name].version}" + _WITH_VERSION_2.get((name, homes[name].version), "")
        elif name == "pids":
            held[name] = "RLIMIT_NPROC of the sandbox's own user"
        else:
            missing[name] = (problem or f"no {name} controller for us") + _WITHOUT_GROUP[name]
    if limits.open_files is not None:
        held["open_files"] = "RLIMIT_NOFILE, per process"
    if limits.disk is not None:
        held["disk"] = (
            "each file by RLIMIT_FSIZE; all of them, since the last freeze, by killing what runs once over it"
        )
    if limits.wall is not None:
        held["wall"] = "the sandbox is ended"
    return held, missing


@functools.cache
def find_homes() -> tuple[dict[str, Home], str]:
    """The home of each controller that we can write, and the reason when there is none; found once per process."""
    homes: dict[str, Home] = {}
    own = _own_groups(_text(Path("/proc/self/cgroup")))
    mounts = list(_mounts(_text(Path("/proc/self/mounts"))))
    for mount, version, names in mounts:
        wanted = [name for name in names if name not in homes]
        ours = own.get("" if version == 2 else ",".join(names[:1]), "/")
        for candidate in _from_top(mount, ours) if wanted else []:
            usable = _prepare(candidate, version, wanted)
            if usable:
                top = (candidate / _TOP).resolve()  # once, here: two names may lead to one hierarchy
                homes |= {name: Home(top, version) for name in usable}
                break
    if homes:
        return homes, ""
    where = ", ".join(str(mount) for mount, _, names in mounts if names)
    if not where:
        return homes, "no cgroup controller is mounted"
    return homes, f"uid {os.geteuid()} may not make groups under {where}; use root or a delegated group"


def reap() -> int:
    """Remove the groups whose owner is gone, killing what is left in them; returns how many."""
    homes, _ = find_homes()
    gone: set[str] = set()
    for top in {home.directory for home in homes.values() if home.directory.is_dir()}:
        for path in [entry for entry in top.iterdir() if entry.is_dir()]:
            owner = Owner.from_tag(path.name.partition("@")[2])
            if owner is not None and not owner.alive():
                _remove(path)
                gone.add(path.name)
    return len(gone)


def _mounts(table: str) -> Iterator[tuple[Path, int, list[str]]]:
    """Each cgroup mount, its version, and our controllers in it; a unified hierarchy may well hold none of them."""
    for line in table.splitlines():
        _, target, kind, options, *_ = line.split()
        if kind == "cgroup":
            yield Path(target), 1, [name for name in options.split(",") if name in _CONTROLLERS]
        elif kind == "cgroup2":
            yield Path(target), 2, [name for name in _words(Path(target, "cgroup.controllers")) if name in _CONTROLLERS]


def _own_groups(table: str) -> dict[str, str]:
    """Our own group's path by controller; the unified hierarchy is the empty name."""
    groups: dict[str, str] = {}
    for line in table.splitlines():
        _, names, path = line.split(":", 2)
        groups |= dict.fromkeys(names.split(","), path)
    return groups


def _from_top(mount: Path, own: str) -> list[Path]:
    """The mount point and the directories down to our own group: the highest that is ours wins."""
    path = mount / own.lstrip("/")
    return [mount, *reversed([step for step in (path, *path.parents) if mount in step.parents])]


def _prepare(candidate: Path, version: int, wanted: Sequence[str]) -> list[str]:
    """Make our directory below ``candidate``; returns the wanted controllers that its groups will have."""
    if not all(os.access(path, os.W_OK) for path in (candidate, candidate / "cgroup.procs")):
        return []
    top = candidate / _TOP
    try:
        top.mkdir(mode=0o755, exist_ok=True)
    except OSError:
        return []
    if version == 1:
        return [*wanted]
    for name in wanted:
        for group in (candidate, top):
            # Refused while the group has processes of its own, or where the controller was not delegated.
            with contextlib.suppress(OSError):
                _write(group / "cgroup.subtree_control", f"+{name}")
    return [name for name in wanted if name in _words(top / "cgroup.subtree_control")]


def _remove(path: Path) -> None:
    deadline, pause = time.monotonic() + _CLOSE_PATIENCE, 0.0005
    while True:
        try:
            path.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise SandboxError(f"control group {path} cannot be removed: {error}") from error
        for word in _words(path / "cgroup.procs"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(word), signal.SIGKILL)
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def _text(path: Path) -> str:
    """What a file of the kernel says; nothing if this kernel has no such file."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _words(path: Path) -> list[str]:
    return _text(path).split()


def _table(path: Path) -> dict[str, int]:
    words = _words(path)
    return {name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)}


def _write(path: Path, value: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, value.encode())
    finally:
        os.close(handle)

"""Where sandboxes keep their files, who owns them, and what may be removed.

    <state>/lock                    flock: shared to add a reference, exclusive to remove what has none
    <state>/boxes/<id>/lease.json   owner, and the ids of the layers the box stands on
    <state>/boxes/<id>/g<N>/        the writable layer of its N-th generation
    <state>/layers/<id>/            frozen ones, immutable
    <state>/snapshots/<id>.json     {"layers": [...], ...}: keeps its layers until it is deleted
    <state>/trash/                  renamed here under the lock, removed outside it

A backend may keep more here: the local one has ``images`` (see ``images/store.py``) and ``dev`` (a mount point).

A reference is written before the thing it refers to appears. So a layer without a reference is garbage.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import itertools
import json
import os
import platform
import stat
import threading
import time
import uuid
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from forkgym.sandboxes.base import StrPath
from forkgym.sandboxes.errors import SandboxTimeoutError, SandboxUnavailableError

ENVIRONMENT = "FORKGYM_STATE"
_LEASE = "lease.json"
_KINDS = ("boxes", "layers", "snapshots", "trash")
_ROOM_WANTED = 2 << 30
LOCK_PATIENCE = 60.0  # seconds
# File systems that cannot hold the upper directory of an overlay.
_NO_UPPER = ("overlay", "nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "vfat", "exfat", "ntfs3", "ecryptfs", "fuse")
_inside = threading.local()


@dataclass(frozen=True)
class Owner:
    """A process, told apart from a later one with the same id by its start time and boot."""

    pid: int
    start: int
    boot: str
    host: str
    pid_namespace: int

    @classmethod
    def current(cls) -> Owner:
        """This process."""
        return _owner(os.getpid())

    def alive(self) -> bool:
        """False only when it certainly is gone: another host or pid namespace cannot be judged from here."""
        me = Owner.current()
        if self.boot != me.boot:
            return self.host != me.host
        if self.pid_namespace != me.pid_namespace:
            return True
        return _start_time(self.pid) == self.start

    def tag(self) -> str:
        """A short text for names that die with the boot anyway; ``from_tag`` reads it."""
        return f"{self.pid}.{self.start}.{self.pid_namespace}"

    @classmethod
    def from_tag(cls, tag: str) -> Owner | None:
        """The owner named by ``tag``, on this boot; ``None`` if it is not a tag."""
        parts = tag.split(".")
        if len(parts) != 3 or not all(part.isdecimal() for part in parts):
            return None
        me = Owner.current()
        return cls(int(parts[0]), int(parts[1]), me.boot, me.host, int(parts[2]))


class Lease:
    """The right to a directory: as long as its owner lives, nobody else removes it or the layers it names."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def take(cls, kind_dir: Path, id: str, layers: Iterable[str] = ()) -> Lease:
        """Make ``kind_dir/id`` and write who owns it and which layers it stands on."""
        lease = cls(kind_dir / id)
        with locked(kind_dir.parent):
            lease.path.mkdir(mode=0o700)
            try:
                lease._write(layers)
            except OSError:
                lease.path.rmdir()
                raise
        return lease

    def update(self, layers: Iterable[str]) -> None:
        """Name the layers the box stands on; call it before a new layer appears on disk."""
        with locked(self.path.parent.parent):
            self._write(layers)

    def release(self) -> None:
        """Give the directory up and remove it. Idempotent."""
        discard(self.path)

    def _write(self, layers: Iterable[str]) -> None:
        write_json(self.path / _LEASE, {**asdict(Owner.current()), "layers": list(layers)})


def state_dir() -> Path:
    """The directory for this user's sandboxes, made on first use with mode 0700.

    ``FORKGYM_STATE`` names it; else it is on a tmpfs with room, else in the user's cache. Raises
    ``SandboxUnavailableError`` if no candidate can hold overlays.
    """
    named = os.environ.get(ENVIRONMENT)
    tried: list[str] = []
    for path in [Path(named)] if named else _candidates():
        problem = _unfit(path)
        if problem is None:
            for kind in _KINDS:
                (path / kind).mkdir(mode=0o700, exist_ok=True)
            return path
        tried.append(f"{path}: {problem}")
    raise SandboxUnavailableError(
        f"no directory for sandboxes ({'; '.join(tried)}). Set {ENVIRONMENT} to a directory of yours on a local disk"
    )


def large_dir(root: Path) -> Path:
    """Where to keep what is large and made once: ``root``, but on a disk if ``root`` was chosen for being in memory."""
    if os.environ.get(ENVIRONMENT) or _file_system(root) != "tmpfs":
        return root
    disks = (path for path in _candidates() if _unfit(path) is None and _file_system(path) != "tmpfs")
    return next(disks, root)


@contextlib.contextmanager
def locked(root: Path, exclusive: bool = False, patience: float = LOCK_PATIENCE) -> Generator[None]:
    """Hold the state directory's lock: shared while a reference is added, exclusive while garbage is picked out.

    Raises ``SandboxTimeoutError`` if others hold it for ``patience`` seconds: it is only ever held for milliseconds.
    """
    path = root / "lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    outer = inside_lock()
    _inside.depth = outer + 1
    try:
        # Inside of itself the lock is had at once or never.
        _lock(handle, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, path, 0.0 if outer else patience)
        yield
    finally:
        _inside.depth = outer
        # Closing is not enough: a child forked by another thread in the meantime holds the same open file.
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def inside_lock() -> int:
    """How often this thread holds the lock or waits for it. A finalizer, which can interrupt a thread anywhere, must
    not ask for it then: the thread would wait for itself."""
    return getattr(_inside, "depth", 0)


def _lock(handle: int, kind: int, path: Path, patience: float) -> None:
    """``flock`` with an end to the waiting, which the system call does not offer.

    What counts is the time slept here: a machine that stood still in the meantime is no holder that hangs.
    """
    slept, pause = 0.0, 0.0005
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if slept > patience:
                raise SandboxTimeoutError(
                    f"{path} was held by {_holder(handle)} for {patience:g} s. End it if it hangs (`fuser -v {path}` "
                    f"names all that have the file open), or set {ENVIRONMENT} to another directory"
                ) from None
        time.sleep(pause)
        slept += pause
        pause = min(2 * pause, 0.02)


def _holder(handle: int) -> str:
    """Who took the lock of this open file, by the list of the kernel. A forked child can keep it for a dead parent."""
    inode = f":{os.fstat(handle).st_ino}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            _, kind, _, _, pid, file, *_ = line.split()
            if kind == "FLOCK" and file.endswith(inode):
                return f"process {pid}" + (", which is gone, or a child of it" if _start_time(int(pid)) is None else "")
    return "another process"


def owner_alive(path: StrPath) -> bool:
    """True if the directory's lease is held by a living process; safe against reuse of process ids."""
    lease = read_json(Path(path) / _LEASE)
    try:
        return Owner(**{name: lease[name] for name in Owner.__annotations__}).alive() if lease else False
    except KeyError:
        return False


def reap(root: Path) -> dict[str, int]:
    """Remove boxes whose owner is gone, layers that nobody refers to, and abandoned trash; counts by kind."""
    with locked(root, exclusive=True):
        boxes = _all_to_trash(root, [box for box in _entries(root / "boxes") if not owner_alive(box)])
        used = _referenced(root)
        layers = _all_to_trash(root, [layer for layer in _entries(root / "layers") if layer.name not in used])
        trash = _all_to_trash(root, [path for path in _entries(root / "trash") if _abandoned(path)])
    for path in (*boxes, *layers, *trash):
        remove_tree(path)
    return {"boxes": len(boxes), "layers": len(layers), "trash": len(trash)}


def drop_layers(root: Path, ids: Iterable[str]) -> int:
    """Remove those of these layers that nobody refers to any more; returns how many."""
    with locked(root, exclusive=True):
        free = set(ids) - _referenced(root)
        layers = _all_to_trash(root, [root / "layers" / name for name in sorted(free)])
    for path in layers:
        remove_tree(path)
    return len(layers)


def users(root: Path) -> dict[str, set[str]]:
    """The ids of the boxes and snapshots that stand on each layer, layers of images (``name@layer``) included."""
    records = [(box.name, box / _LEASE) for box in _entries(root / "boxes")]
    records += [(path.stem, path) for path in _entries(root / "snapshots") if path.suffix == ".json"]
    found: dict[str, set[str]] = {}
    for user, path in records:
        record = read_json(path) or {}
        for layer in (*record.get("layers", []), str(record.get("image", "")).partition("@")[2]):
            found.setdefault(layer, set()).add(user)
    found.pop("", None)
    return found


def discard(path: Path) -> None:
    """Remove ``<state>/<kind>/<id>``: out of sight at once, then its bytes. Idempotent."""
    with contextlib.suppress(FileNotFoundError):
        remove_tree(_to_trash(path.parent.parent, path))


def remove_tree(path: Path) -> None:
    """Remove a directory tree of any depth and with any modes; symbolic links are not followed. Idempotent.

    Directories found on the way are moved up to the top, so neither depth nor path length matters.
    """
    try:
        top = _open_directory(str(path), None)
    except FileNotFoundError:
        return
    try:
        _empty(top)
    finally:
        os.close(top)
    os.rmdir(path)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; ``None`` if the file is absent or damaged."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Replace a JSON file at once: a reader sees the old or the new one, never a part."""
    new = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        new.write_text(json.dumps(value))
        new.rename(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _empty(top: int) -> None:
    """Remove all below the open directory ``top``."""
    prefix = uuid.uuid4().hex
    numbers = itertools.count()
    waiting = _lift(top, top, prefix, numbers)
    while waiting:
        name = waiting.pop()
        handle = _open_directory(name, top)
        try:
            waiting += _lift(handle, top, prefix, numbers)
        finally:
            os.close(handle)
        os.rmdir(name, dir_fd=top)


def _lift(directory: int, top: int, prefix: str, numbers: Iterator[int]) -> list[str]:
    """Unlink the files of ``directory`` and move its directories to ``top``; returns their names there."""
    moved: list[str] = []
    with os.scandir(directory) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in found:
        if is_directory:
            # Moving a directory rewrites its "..", which its owner may only do when it is writable.
            os.close(_open_directory(name, directory))
            moved.append(f"{prefix}{next(numbers)}")
            os.rename(name, moved[-1], src_dir_fd=directory, dst_dir_fd=top)
        else:
            os.unlink(name, dir_fd=directory)
    return moved


def _open_directory(name: str, parent: int | None) -> int:
    """Open a directory that may have no permissions (an overlay's ``work/work`` has none), never through a link."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(name, os.O_PATH | flags, dir_fd=parent)
    try:
        if os.fstat(handle).st_mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
        return os.open(f"/proc/self/fd/{handle}/.", os.O_RDONLY | flags)
    finally:
        os.close(handle)


def _referenced(root: Path) -> set[str]:
    """The ids of all layers that a box or a snapshot stands on. Call it under the exclusive lock."""
    return set(users(root))


def _to_trash(root: Path, path: Path) -> Path:
    target = root / "trash" / f"{uuid.uuid4().hex}@{Owner.current().tag()}"
    return path.rename(target)


def _all_to_trash(root: Path, paths: Iterable[Path]) -> list[Path]:
    """As ``_to_trash``, but for what its owner removed at the same moment: owners take no lock for that."""
    moved: list[Path] = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            moved.append(_to_trash(root, path))
    return moved


def _abandoned(path: Path) -> bool:
    owner = Owner.from_tag(path.name.partition("@")[2])
    return owner is None or not owner.alive()


def _entries(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


@functools.cache  # a forked child asks with an id of its own
def _owner(pid: int) -> Owner:
    start = _start_time(pid)
    if start is None:
        raise ProcessLookupError(f"no process {pid}")
    return Owner(pid, start, _boot_id(), _host(), os.stat("/proc/self/ns/pid").st_ino)


@functools.cache
def _host() -> str:
    """The name of this host, with what tells it from others of this name that use the same docker daemon."""
    try:
        identity = hashlib.sha256(Path("/etc/machine-id").read_bytes()).hexdigest()[:12]
    except OSError:
        identity = ""
    return f"{platform.node()}/{identity}"


def _start_time(pid: int) -> int | None:
    """Field 22 of ``/proc/PID/stat`` (ticks since boot); ``None`` for a process that is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command in parentheses may hold anything, also spaces and parentheses.
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


@functools.cache
def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _candidates() -> Iterator[Path]:
    """Places in order of preference. The choice depends only on what does not change while the machine is up, so
    that a later process finds the snapshots of an earlier one."""
    name = f"forkgym-{os.geteuid()}"
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError):
        shm = os.statvfs("/dev/shm")
        if memory >= 2 * _ROOM_WANTED and shm.f_blocks * shm.f_frsize >= _ROOM_WANTED:
            yield Path("/dev/shm", name)
    home = os.environ.get("HOME", "")
    cache = os.environ.get("XDG_CACHE_HOME") or (home and f"{home}/.cache")
    if cache:
        yield Path(cache, "forkgym", "state")
    yield Path("/var/tmp", name)
    yield Path("/tmp", name)


def _unfit(path: Path) -> str | None:
    """Make the directory if need be; why it cannot be used, or ``None``."""
    if not path.is_absolute():
        return "not an absolute path"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        return error.strerror or str(error)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        return "not a directory that only this user can write to"
    kind = _file_system(path)
    if kind in _NO_UPPER or kind.startswith("fuse"):
        return f"the file system {kind} cannot hold the upper layer of an overlay"
    try:
        # Overlays note replaced directories there. A tmpfs that can do it (Linux 6.6) also maps ids.
        os.setxattr(path, "user.forkgym", b"")
    except OSError:
        return f"the file system {kind} keeps no extended attributes of users on this kernel"
    return None


def _file_system(path: Path) -> str:
    """The type of the file system that ``path`` lies on: that of the longest mount point above it."""
    where, best, kind = str(path.resolve()), "", ""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        mount = left.split()[4].encode().decode("unicode_escape")
        if len(mount) >= len(best) and (where + "/").startswith(mount.rstrip("/") + "/"):
            best, kind = mount, right.split()[0]
    return kind

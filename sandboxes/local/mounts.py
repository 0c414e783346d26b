"""The file system of a sandbox: overlays over image and layers, built by the zygote and attached by the first process.

A sandbox has two overlays, ``/`` and ``/usr``, because an overlay does not see through the mounts of its lower
directories. Every layer directory therefore holds a part for each: ``root`` and ``usr`` with their work directories.
All directories are passed as descriptors, so that no path of the host shows in the sandbox's mount table.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from forkgym.sandboxes.guest import syscalls, wire

VOLUMES = ("root", "usr")
# Where the new root is attached for the moment before it becomes "/": a directory that every machine and image has.
_STAGE = "/usr"
_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
    # The script of a persistent shell, under the name that its error messages should begin with.
    "bash": "/proc/self/fd/63",
}
# Mounts that a new root takes over from the old one, where they are: the last two in containers.
_MOVING = ("proc", "dev", "sys", ".forkgym")
_MASKED = ("cmdline", "kcore", "keys")
_SHM_OPTIONS = "mode=1777,size=64m"


@dataclass(frozen=True)
class Ids:
    """How ids inside map to the host's: a range from ``base`` through the namespace ``userns``, or (rootless) not.

    Without ``userns`` but with ``base`` 0, they are the host's own, as in a container.
    """

    base: int | None = None
    userns: int = -1

    @property
    def mapped(self) -> bool:
        """True if layers must be shown with other ids than they have."""
        return self.userns >= 0


@dataclass(frozen=True)
class RootSpec:
    """What to mount. ``layers``: directories, the writable one first. ``image``: lower directories by volume.

    ``binds``: (source, target) pairs of host directories to show read-only.
    """

    layers: tuple[str, ...]
    image: dict[str, list[str]]
    binds: tuple[tuple[str, str], ...]

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> RootSpec:
        """Read it from the request that the client sent."""
        return cls(tuple(message["layers"]), message["image"], tuple((s, t) for s, t in message["binds"]))


def build(spec: RootSpec, ids: Ids, devices: str) -> list[int]:
    """Detached mounts: one per volume, the ``devices``, and one per bind. The caller closes them."""
    opened: list[int] = []
    built: list[int] = []
    try:
        layers = [_keep(_open_layer(path, ids), opened) for path in spec.layers]
        images = {name: [_keep(_open_image(path, ids), opened) for path in spec.image[name]] for name in VOLUMES}
        trees = [*opened]
        parts = [_Part.of(name, layers, images[name], opened) for name in VOLUMES]
        built += _as_mounter(ids, lambda: _overlays(parts, trees, f"{devices}/shm", ids))
        built.append(_clone_read_only(devices, devices=True))
        built += [_clone_read_only(source) for source, _ in spec.binds]
        return built
    except BaseException:
        wire.close_all(built)
        raise
    finally:
        wire.close_all(opened)


def enter(spec: RootSpec, built: Sequence[int]) -> None:
    """In a new mount and pid namespace: put the built mounts together, add /proc and /dev, and make them "/"."""
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    _attach_volumes(built)
    hidden = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("proc", _STAGE + "/proc", "proc", hidden)
    syscalls.move_mount(built[2], _STAGE + "/dev")
    syscalls.mount("shm", _STAGE + "/dev/shm", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, _SHM_OPTIONS)
    options = "newinstance,ptmxmode=0666,mode=620"
    syscalls.mount("devpts", _STAGE + "/dev/pts", "devpts", syscalls.MS_NOSUID | syscalls.MS_NOEXEC, options)
    for name in _MASKED:
        if os.path.exists(f"{_STAGE}/proc/{name}"):
            syscalls.mount(_STAGE + "/dev/null", f"{_STAGE}/proc/{name}", None, syscalls.MS_BIND)
    _attach_binds(spec, built)
    wire.close_all(built)
    os.chdir(_STAGE)
    syscalls.pivot_here()


def replace(spec: RootSpec, built: Sequence[int]) -> None:
    """From inside the sandbox's mount namespace: make newly built mounts the root of all its processes.

    Working directories and open files stay in the old root, which is left read-only.
    """
    _attach_volumes(built)
    root = os.open(_STAGE, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in _MOVING:
        if os.path.ismount("/" + name):
            fd, place = syscalls.open_tree("/" + name), _place(root, "/" + name, directory=True)
            syscalls.move_mount(fd, place)
            wire.close_all([fd, place])
    os.close(root)
    _attach_binds(spec, built)
    os.chdir(_STAGE)
    syscalls.pivot_here()


def freeze() -> None:
    """From inside: make both overlays read-only. Raises EBUSY, and changes nothing, while a process can write."""
    frozen: list[int] = []
    try:
        for path in ("/", "/usr"):
            fd = syscalls.open_tree(path)
            try:
                syscalls.mount_setattr(fd, set=syscalls.ATTR_RDONLY)
            except BaseException:
                os.close(fd)
                raise
            frozen.append(fd)
    except OSError:
        for fd in frozen:
            syscalls.mount_setattr(fd, clear=syscalls.ATTR_RDONLY)
        raise
    finally:
        wire.close_all(frozen)


def thaw() -> None:
    """Undo ``freeze``."""
    for path in ("/", "/usr"):
        fd = syscalls.open_tree(path)
        syscalls.mount_setattr(fd, clear=syscalls.ATTR_RDONLY)
        os.close(fd)


def make_devices(place: str, privileged: bool) -> None:
    """Mount a small /dev for all sandboxes at ``place``, seen by the zygote only; each sandbox gets a read-only clone.

    Read-only, since a writable one would let sandboxes see each other's files; devices work all the same.
    """
    # Without privilege there is no mknod, but the host's devices may be bound.
    sources = {} if privileged else {name: syscalls.open_tree("/dev/" + name, clone=True) for name in _DEVICES}
    tree = syscalls.new_filesystem("tmpfs", {"mode": "755", "size": "64k"})
    for name, (major, minor) in _DEVICES.items():
        if privileged:
            os.mknod(name, 0o666 | stat.S_IFCHR, os.makedev(major, minor), dir_fd=tree)
            os.chmod(f"/proc/self/fd/{tree}/{name}", 0o666)
        else:
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666, dir_fd=tree))
    for name, target in _DEVICE_LINKS.items():
        os.symlink(target, name, dir_fd=tree)
    for name in ("shm", "pts"):
        os.mkdir(name, 0o755, dir_fd=tree)
    syscalls.move_mount(tree, place)
    os.close(tree)
    for name, fd in sources.items():
        syscalls.move_mount(fd, f"{place}/{name}")
        os.close(fd)


def _attach_volumes(built: Sequence[int]) -> None:
    syscalls.move_mount(built[0], _STAGE)
    syscalls.move_mount(built[1], _STAGE + "/usr")


def _attach_binds(spec: RootSpec, built: Sequence[int]) -> None:
    root = os.open(_STAGE, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for (source, target), fd in zip(spec.binds, built[3:], strict=True):
            try:
                place = _place(root, os.path.normpath(f"/{target}"), stat.S_ISDIR(os.fstat(fd).st_mode))
                try:
                    syscalls.move_mount(fd, place)
                finally:
                    os.close(place)
            except OSError as error:
                reason = os.strerror(error.errno or 0)
                raise OSError(error.errno, f"cannot show {source} at {target}: {reason}") from error
    finally:
        os.close(root)


def _place(root: int, target: str, directory: bool) -> int:
    """A descriptor of the place ``target`` below ``root``, made if need be.

    "/" may still be the host's here, and links on the way may be an agent's work: they must lead nowhere but inside.
    """
    flags = os.O_PATH | (os.O_DIRECTORY if directory else 0)
    try:
        return syscalls.openat2(target, flags, root=root)
    except FileNotFoundError:
        above, name = os.path.split(target)
    parent = _place(root, above, directory=True)
    try:
        if directory:
            os.mkdir(name, 0o755, dir_fd=parent)
        else:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=parent))
    finally:
        os.close(parent)
    return syscalls.openat2(target, flags, root=root)


def source_of(fd: int) -> str:
    """A path that leads to the root of the mount behind a descriptor."""
    return f"/proc/self/fd/{fd}"


def _open_layer(path: str, ids: Ids) -> int:
    fd = syscalls.open_tree(path, clone=True)
    if not ids.mapped:
        return fd
    try:
        syscalls.mount_setattr(fd, set=syscalls.ATTR_IDMAP, userns=ids.userns)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _open_image(path: str, ids: Ids) -> int:
    """An image directory that lies on a file system without id mapping is shown as owned by nobody."""
    try:
        return _open_layer(path, ids)
    except OSError as error:
        if ids.base is None or error.errno not in (errno.EINVAL, errno.EPERM):
            raise
    if ids.mapped:
        return _open_layer(path, Ids())
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # the root of a container, which is a copy itself


def _keep(fd: int, opened: list[int]) -> int:
    opened.append(fd)
    return fd


def _as_mounter(ids: Ids, action: Callable[[], list[int]]) -> list[int]:
    """The overlay keeps the mounter's ids for its own work on the layers, so they must be ones the layers map."""
    if ids.base is None:
        return action()
    syscalls.set_fs_ids(ids.base, ids.base)
    try:
        return action()
    finally:
        syscalls.set_fs_ids(0, 0)


@dataclass(frozen=True)
class _Part:
    """The directories of one overlay, as descriptors."""

    lowers: list[int]
    upper: int
    work: int

    @classmethod
    def of(cls, volume: str, layers: list[int], images: list[int], opened: list[int]) -> _Part:
        """The part of ``layers`` for this volume, over ``images``."""

        def inside(layer: int, name: str) -> int:
            flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            return _keep(os.open(name, flags, dir_fd=layer), opened)

        lowers = [inside(layer, volume) for layer in layers[1:]]
        return cls([*lowers, *images], inside(layers[0], volume), inside(layers[0], f"{volume}.work"))


def _overlays(parts: Sequence[_Part], trees: Sequence[int], place: str, ids: Ids) -> list[int]:
    # volatile: no sync of data that dies with its sandbox. redirect_dir: directories of lower layers can be renamed.
    flags: dict[str, str | None] = {"volatile": None, "index": "off"}
    flags |= {"userxattr": None} if ids.base is None else {"redirect_dir": "on", "metacopy": "off"}
    try:
        return _collect(lambda part: _overlay(part, flags), parts)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
    with _attached(trees, place):
        return _collect(lambda part: _overlay_by_names(part, flags), parts)


def _collect(make: Callable[[_Part], int], parts: Sequence[_Part]) -> list[int]:
    made: list[int] = []
    try:
        for part in parts:
            made.append(make(part))
    except BaseException:
        wire.close_all(made)
        raise
    return made


def _overlay(part: _Part, flags: dict[str, str | None]) -> int:
    directories = {"upperdir": part.upper, "workdir": part.work}
    return syscalls.new_filesystem("overlay", {"source": "sandbox", **flags, **directories}, part.lowers)


def _overlay_by_names(part: _Part, flags: dict[str, str | None]) -> int:
    """For kernels before 6.13, whose overlay takes no descriptors: name them through /proc instead."""
    words = [key if value is None else f"{key}={value}" for key, value in flags.items()]
    words.append("lowerdir=" + ":".join(source_of(fd) for fd in part.lowers))
    words += [f"upperdir={source_of(part.upper)}", f"workdir={source_of(part.work)}"]
    syscalls.mount("sandbox", _STAGE, "overlay", 0, ",".join(words))
    try:
        return syscalls.open_tree(_STAGE, clone=True)
    finally:
        syscalls.umount(_STAGE)


@contextlib.contextmanager
def _attached(trees: Sequence[int], place: str) -> Generator[None]:
    """For kernels before 6.15, whose overlay takes no detached trees: stack them at ``place`` for the while."""
    count = 0
    try:
        for tree in trees:
            syscalls.move_mount(tree, place)
            count += 1
        yield
    finally:
        for _ in range(count):
            syscalls.umount(place)


def _clone_read_only(path: str, devices: bool = False) -> int:
    fd = syscalls.open_tree(path, clone=True, recursive=devices)
    flags = syscalls.ATTR_RDONLY | (0 if devices else syscalls.ATTR_NODEV | syscalls.ATTR_NOSUID)
    syscalls.mount_setattr(fd, set=flags)
    return fd

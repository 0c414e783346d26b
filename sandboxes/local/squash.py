"""Merge frozen layers into one, by hard links, so that a chain does not grow for ever.

Overlayfs marks what a layer hides: a whiteout (character device 0/0) hides a name, the attribute ``opaque`` what is
below a directory, and ``redirect`` says that a directory was renamed and where it was before.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence

from forkgym.sandboxes.local.mounts import VOLUMES


class CannotMergeError(Exception):
    """A renamed directory of the image has parts that only the overlay itself can put together."""


def squash(layers: Sequence[str], image: dict[str, list[str]], target: str, privileged: bool) -> None:
    """Write the union of ``layers`` (topmost first) into the empty layer directory ``target``.

    ``image``: the directories below, by volume; their files stay hidden or merged as before.
    Raises ``CannotMergeError`` and leaves ``target`` half done.
    """
    prefix = "trusted.overlay." if privileged else "user.overlay."
    for volume in VOLUMES:
        out = os.path.join(target, volume)
        merger = _Merger(out, image[volume], prefix)
        for layer in reversed(layers):
            merger.add(os.path.join(layer, volume))


class _Merger:
    def __init__(self, out: str, image: list[str], prefix: str) -> None:
        self._out = out
        self._image = image
        self._prefix = prefix
        self._held = out + ".held"

    def add(self, layer: str) -> None:
        """Lay one more layer on top."""
        moved = self._hold_moved(layer)
        for path, directories, files in os.walk(layer):
            relative = os.path.relpath(path, layer)
            self._directory(path, relative, moved.get(relative))
            links = [name for name in directories if os.path.islink(os.path.join(path, name))]
            for name in (*files, *links):
                target = os.path.join(self._out, relative, name)
                _remove(target)
                os.link(os.path.join(path, name), target, follow_symlinks=False)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._held)
        for path, _, _ in os.walk(layer, topdown=False):  # only now, as each entry made in a directory changes its time
            _copy_times(path, os.path.join(self._out, os.path.relpath(path, layer)))

    def _directory(self, source: str, relative: str, held: str | None) -> None:
        target = os.path.normpath(os.path.join(self._out, relative))
        opaque = self._attribute(source, "opaque") == b"y"
        renamed = self._attribute(source, "redirect") is not None
        if opaque or renamed or not os.path.isdir(target) or os.path.islink(target):
            _remove(target)
            if held is not None:
                os.rename(held, target)
            else:
                os.mkdir(target)
        for name in os.listxattr(source):
            if not name.startswith(self._prefix):
                os.setxattr(target, name, os.getxattr(source, name))
        if opaque or renamed:
            os.setxattr(target, self._prefix + "opaque", b"y")
        _copy_status(source, target)

    def _hold_moved(self, layer: str) -> dict[str, str]:
        """Put aside the merged directories that this layer renamed; returns where, by their new path.

        All at once and the deepest first, since they are named as they were before any of the renames.
        """
        origins = dict(self._renamed(layer, layer, "."))
        moved: dict[str, str] = {}
        for number, (new, old) in enumerate(sorted(origins.items(), key=lambda pair: -pair[1].count("/"))):
            source = os.path.join(self._out, old)
            if self._in_image(old) and self._attribute(source, "opaque") != b"y":
                raise CannotMergeError(f"/{old} of the image was renamed")
            if os.path.isdir(source):
                os.makedirs(self._held, exist_ok=True)
                moved[new] = os.path.join(self._held, str(number))
                os.rename(source, moved[new])
        return moved

    def _renamed(self, layer: str, path: str, origin: str) -> Iterator[tuple[str, str]]:
        """(new path, old path) of each renamed directory below ``path``, which was at ``origin``."""
        with os.scandir(path) as entries:
            below = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
        for entry in below:
            old = os.path.join(origin, entry.name)
            redirect = self._attribute(entry.path, "redirect")
            if redirect is not None:
                name = os.fsdecode(redirect)
                old = name.lstrip("/") if name.startswith("/") else os.path.join(origin, name)
                yield os.path.relpath(entry.path, layer), os.path.normpath(old)
            yield from self._renamed(layer, entry.path, os.path.normpath(old))

    def _in_image(self, relative: str) -> bool:
        return any(os.path.lexists(os.path.join(lower, relative)) for lower in self._image)

    def _attribute(self, path: str, name: str) -> bytes | None:
        try:
            return os.getxattr(path, self._prefix + name, follow_symlinks=False)
        except OSError:
            return None


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _copy_status(source: str, target: str) -> None:
    status = os.lstat(source)
    os.chown(target, status.st_uid, status.st_gid)
    os.chmod(target, stat.S_IMODE(status.st_mode))


def _copy_times(source: str, target: str) -> None:
    status = os.lstat(source)
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))

"""An image as one tar archive, the form that other engines import."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from forkgym.sandboxes import state
from forkgym.sandboxes.errors import ImageError
from forkgym.sandboxes.images.store import open_store
from forkgym.sandboxes.local.launcher import is_privileged
from forkgym.sandboxes.local.mounts import VOLUMES
from forkgym.sandboxes.local.squash import squash


def export_tar(ref: str, file: IO[bytes]) -> str:
    """Write the root file system of the image ``ref`` as a tar archive; returns the ``name@id`` of what was written.

    One image always gives the same bytes: names are sorted, owners are numbers, times (in seconds) are kept. A toolbox
    becomes ordinary files. ``file`` need not be seekable. Raises ``ImageError``.
    """
    store = open_store(state.state_dir())
    chain = store.find(ref)
    if chain.host is not None:
        raise ImageError(f"the image {ref!r} stands on this machine's own system and cannot leave it; use from: debian")
    with store.held(layer.id for layer in chain.layers), store.scratch() as scratch:
        chain = store.find(chain.ref)  # from now on nothing of it can go any more
        with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for volume in VOLUMES:
                (scratch / volume).mkdir()
            plain = [str(layer.path) for layer in chain.layers if layer.target is None]
            squash(plain, {volume: [] for volume in VOLUMES}, str(scratch), is_privileged())
            _add_tree(tar, scratch / "root", "")
            _add_tree(tar, scratch / "usr", "usr")
            for layer in reversed(chain.layers):
                if layer.target is not None:
                    _add_tree(tar, layer.path / "tool", layer.target.strip("/"), root_owned=True)
    return chain.ref


def _add_tree(tar: tarfile.TarFile, top: Path, name: str, root_owned: bool = False) -> None:
    for path, place in _walk(top, name):
        status = path.lstat()
        if stat.S_ISSOCK(status.st_mode) or (stat.S_ISCHR(status.st_mode) and status.st_rdev == 0):
            continue  # nobody listens any more; the mark of something removed
        info = tar.gettarinfo(path, place)
        info.uname = info.gname = ""
        info.mtime = int(info.mtime)
        if root_owned:
            info.uid = info.gid = 0
        if info.isreg():
            with path.open("rb") as content:
                tar.addfile(info, content)
        else:
            tar.addfile(info)


def _walk(top: Path, name: str) -> Iterator[tuple[Path, str]]:
    if name:
        yield top, name
    with os.scandir(top) as entries:
        found = sorted(entries, key=lambda entry: os.fsencode(entry.name))
    for entry in found:
        path, place = Path(entry.path), f"{name}/{entry.name}" if name else entry.name
        if place == "usr":
            continue  # its files are the other volume's
        if stat.S_ISDIR(entry.stat(follow_symlinks=False).st_mode):
            yield from _walk(path, place)
        else:
            yield path, place

"""Files of the host on their way into an image: packed into a tar archive, and hashed."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from forkgym.sandboxes.errors import RecipeError
from forkgym.sandboxes.images.recipe import Step

_KEPT_MODE = 0o777  # no setuid, setgid or sticky bit comes along


def sources(step: Step, folder: Path) -> list[tuple[Path, str]]:
    """(path on the host, place in the image) of each entry of a step. Raises ``RecipeError``.

    ``copy`` takes files from the recipe's folder only, wherever links lead; ``toolbox`` takes any directory. A place
    that ends in ``/`` is the directory to copy into.
    """
    found: list[tuple[Path, str]] = []
    for source, target in (pair for pair in step.value if not isinstance(pair, str)):
        try:
            path = (folder / Path(source).expanduser()).resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise RecipeError(f"{step.where}: {step.kind}: no {source!r} beside the recipe: {error}") from error
        if step.kind == "copy" and not path.is_relative_to(folder.resolve()):
            raise RecipeError(f"{step.where}: copy: {source!r} leads out of {folder}; only files below it are copied")
        if step.kind == "toolbox" and not path.is_dir():
            raise RecipeError(f"{step.where}: toolbox: {source!r} is not a directory")
        found.append((path, target + path.name if target.endswith("/") and step.kind == "copy" else target))
    return found


def pack(entries: Iterable[tuple[Path, str]], archive: Path, where: str) -> str:
    """Write trees as (path, name in the archive) into ``archive``, owned by root; returns the hash of their content.

    Symbolic links stay links and are not followed. Times are kept and do not count in the hash. ``where`` names the
    step in errors. Raises ``RecipeError`` for what is neither file, directory nor link, and ``OSError``.
    """
    digest = hashlib.sha256()
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        for path, target in entries:
            for found, name in _walk(path, target.strip("/")):
                digest.update(_add(tar, found, name, where).encode())
    archive.chmod(0o644)
    return digest.hexdigest()


def _walk(path: Path, name: str) -> Iterator[tuple[Path, str]]:
    yield path, name
    if path.is_dir() and not path.is_symlink():
        for below in sorted(path.iterdir()):
            yield from _walk(below, f"{name}/{below.name}" if name else below.name)


def _add(tar: tarfile.TarFile, path: Path, name: str, where: str) -> str:
    status = path.lstat()
    info = tarfile.TarInfo(name or ".")
    info.mode, info.mtime = stat.S_IMODE(status.st_mode) & _KEPT_MODE, int(status.st_mtime)
    content = ""
    if stat.S_ISLNK(status.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
        tar.addfile(info)
    elif stat.S_ISDIR(status.st_mode):
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    elif stat.S_ISREG(status.st_mode):
        # If it became a link or a pipe meanwhile, this neither follows nor hangs.
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            info.size = os.fstat(file.fileno()).st_size
            reader = _Hashing(file)
            tar.addfile(info, reader)
        content = reader.digest.hexdigest()
    else:
        raise RecipeError(f"{where}: {path} is neither a file, a directory nor a link")
    return repr((info.name, info.type, info.mode, info.linkname, content))


class _Hashing(io.RawIOBase):
    """Reads a file and hashes what was read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        return data

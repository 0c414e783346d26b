"""Files of a sandbox: opened inside by its first process, read and written from here through what that hands out."""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import stat
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Literal

from forkgym.sandboxes.base import DirEntry, StrPath
from forkgym.sandboxes.errors import SandboxError, SandboxFileError
from forkgym.sandboxes.guest import wire
from forkgym.sandboxes.owner.checks import check_bytes, check_count, check_path
from forkgym.sandboxes.owner.commands import Peer
from forkgym.sandboxes.owner.opened import CHUNK, Opened, opened
from forkgym.sandboxes.owner.reply import Refused

_LARGEST_READ = 1 << 30  # bytes, unless the caller names a bound: memory here is not limited by the sandbox
_UNMEASURED = 4 << 20
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class Files:
    """File operations of one sandbox. Relative paths start at ``workdir``.

    ``disk`` is its limit for what is written, of which ``used`` tells how much is; ``None`` where nobody can tell: then
    it bounds each file.
    """

    def __init__(self, peer: Peer, workdir: str, disk: int | None, used: Callable[[], int | None]) -> None:
        self._peer = peer
        self._workdir = workdir
        self._disk, self._used = disk, used
        self._granted = 0  # bytes that may be written until what is used is measured again

    def read(self, path: str, max_bytes: int | None) -> bytes:
        """See ``Sandbox.read_file``: at most the first ``max_bytes``."""
        check_count("max_bytes", max_bytes)
        with self._opened(path, os.O_RDONLY, directory=False) as file, _told(path):
            if max_bytes is None and file.size > _LARGEST_READ:
                raise SandboxFileError(errno.EFBIG, f"{file.size} bytes; give max_bytes, or download the file", path)
            parts: list[bytes] = []
            left = _LARGEST_READ if max_bytes is None else max_bytes
            step = file.size + 1  # the whole file at once; what is growing, or has no size, comes in chunks
            while left > 0 and (part := file.read(min(step, left))):
                parts.append(part)
                left -= len(part)
                step = CHUNK
            return b"".join(parts)

    def write(self, path: str, data: bytes, mode: int) -> None:
        """See ``Sandbox.write_file``."""
        check_bytes("data", data)
        check_count("mode", mode, maximum=0o7777)
        with (
            self._opened(path, _WRITE, directory=False, mode=mode, first=data[:CHUNK], size=len(data)) as file,
            _told(path),
        ):
            if len(data) > CHUNK:
                file.write(data[CHUNK:])

    def list(self, path: str) -> list[DirEntry]:
        """See ``Sandbox.list_dir``."""
        with self._opened(path, os.O_RDONLY, directory=True) as folder, _told(path):
            found = sorted(folder.entries())
            return [DirEntry(name, _kind(mode), size, stat.S_IMODE(mode)) for name, mode, size in found]

    def upload(self, local: StrPath, path: str) -> None:
        """See ``Sandbox.upload``. Links are copied as links; other special files are refused."""
        source = Path(local)
        with _told(str(source)):
            if not source.is_dir():
                self._upload_file(source, path)
                return
            self._ask("mkdir", path, mode=stat.S_IMODE(source.stat().st_mode) | 0o700)
            for entry in sorted(source.iterdir()):
                target = posixpath.join(path, entry.name)
                if entry.is_symlink():
                    self._ask("symlink", target, target=os.readlink(entry))
                else:
                    self.upload(entry, target)

    def download(self, path: str, local: StrPath) -> None:
        """See ``Sandbox.download``. Links and special files are left out."""
        with self._opened(path, os.O_RDONLY) as found, _told(path):
            if stat.S_ISDIR(found.mode):
                _download_tree(found, Path(local))
            else:
                _download_file(found, Path(local))

    def _upload_file(self, source: Path, path: str) -> None:
        with open(source, "rb", opener=_no_wait) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise SandboxFileError(errno.EINVAL, "not a regular file", str(source))
            mode, first = stat.S_IMODE(status.st_mode) | 0o600, file.read(CHUNK)
            with (
                self._opened(path, _WRITE, directory=False, mode=mode, first=first, size=status.st_size) as target,
                _told(path),
            ):
                while chunk := file.read(CHUNK):
                    target.write(chunk)

    def _claim(self, size: int, path: str) -> None:
        """Refuse what the limit ``disk`` leaves no room for: the watch over it kills commands, and this is none.

        Small files are not worth a look at all others: at most ``_UNMEASURED`` bytes are written from one to the next.
        """
        if self._disk is not None and size > self._granted:
            used = self._used()
            room = self._disk - (used or 0)
            if size > room:
                raise SandboxFileError(errno.EDQUOT, f"{size} bytes go beyond the limit disk={self._disk}", path)
            self._granted = size if used is None else max(size, min(room, _UNMEASURED))
        self._granted -= min(size, self._granted)

    @contextlib.contextmanager
    def _opened(
        self,
        path: str,
        flags: int,
        *,
        directory: bool | None = None,
        mode: int = 0o644,
        first: bytes = b"",
        size: int = 0,
    ) -> Generator[Opened]:
        """Open it, and write what is to come ``first``, if the limit has room for ``size`` bytes."""
        ahead = first if self._peer.distant else b""
        if ahead:
            self._claim(size, path)
        answer = self._ask("open", path, ahead, flags=flags, mode=mode, parents=bool(flags & os.O_CREAT))
        with contextlib.closing(opened(self._peer, *answer)) as found:
            # It comes from inside, so its kind is judged here as well.
            if directory is False and not stat.S_ISREG(found.mode):
                number = errno.EISDIR if stat.S_ISDIR(found.mode) else errno.EINVAL
                raise SandboxFileError(number, os.strerror(number), path)
            if directory and not stat.S_ISDIR(found.mode):
                raise SandboxFileError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            if not ahead:  # what stood there before does not count any more
                self._claim(size, path)
            with _told(path):
                found.write(first[len(ahead) :])
            yield found

    def _ask(self, op: str, path: str, along: bytes = b"", **details: object) -> tuple[dict[str, Any], list[int]]:
        check_path(path)
        if "\0" in path:
            raise SandboxFileError(errno.EINVAL, "a path cannot hold a NUL byte", path)
        try:
            os.fsencode(path)
        except UnicodeEncodeError as error:
            raise SandboxFileError(errno.EILSEQ, "a path cannot hold half a surrogate pair", path) from error
        full = posixpath.join(self._workdir, path)
        fds = [wire.memory_file(along)] if along else []
        try:
            return self._peer.ask({"op": op, "path": full, **details}, fds)
        except Refused as error:
            raise SandboxFileError(error.errno, os.strerror(error.errno or 0), path) from error
        finally:
            wire.close_all(fds)


@contextlib.contextmanager
def _told(path: str) -> Generator[None]:
    """Failures of reading and writing, for example a full disk, on either side: the file is ``path`` unless they
    name another one."""
    try:
        yield
    except SandboxError:
        raise
    except OSError as error:
        name = error.filename if isinstance(error.filename, str) else path
        raise SandboxFileError(error.errno, error.strerror, name) from error


def _kind(mode: int) -> Literal["file", "dir", "link", "other"]:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "dir"
    return "link" if stat.S_ISLNK(mode) else "other"


def _no_wait(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def _download_file(source: Opened, target: Path) -> None:
    with open(target, "wb") as file:
        while chunk := source.read(CHUNK):
            file.write(chunk)
        os.fchmod(file.fileno(), stat.S_IMODE(source.mode) & 0o777)


def _download_tree(source: Opened, target: Path) -> None:
    """Walk from each directory to what it holds, one name at a time and never through a link, so that nothing can
    lead outside."""
    target.mkdir(parents=True, exist_ok=True)
    for name, mode, _ in source.entries():
        kind = _kind(mode)
        if kind not in ("file", "dir") or not _is_plain(name):
            continue
        with contextlib.closing(source.child(name, kind == "dir")) as child:
            if kind == "dir":
                _download_tree(child, target / name)
            elif stat.S_ISREG(child.mode):
                _download_file(child, target / name)


def _is_plain(name: str) -> bool:
    """False for what no directory holds, but another machine may claim that one does."""
    return bool(name) and "/" not in name and "\0" not in name and name not in (".", "..")

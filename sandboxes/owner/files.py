"""Files of a sandbox: opened inside by its first process, read and written here through the descriptor it hands out."""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import stat
from collections.abc import Generator
from pathlib import Path
from typing import Literal

from forkgym.sandboxes.base import DirEntry, StrPath
from forkgym.sandboxes.errors import SandboxError, SandboxFileError
from forkgym.sandboxes.owner.checks import check_bytes, check_count, check_path
from forkgym.sandboxes.owner.commands import Peer
from forkgym.sandboxes.owner.reply import Refused

_CHUNK = 1 << 20
_LARGEST_READ = 1 << 30  # bytes, unless the caller names a bound: memory here is not limited by the sandbox
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class Files:
    """File operations of one sandbox. Relative paths start at ``workdir``."""

    def __init__(self, peer: Peer, workdir: str) -> None:
        self._peer = peer
        self._workdir = workdir

    def read(self, path: str, max_bytes: int | None) -> bytes:
        """See ``Sandbox.read_file``: at most the first ``max_bytes``."""
        check_count("max_bytes", max_bytes)
        with self._opened(path, os.O_RDONLY, directory=False) as fd, _told(path):
            size = os.fstat(fd).st_size
            if max_bytes is None and size > _LARGEST_READ:
                raise SandboxFileError(errno.EFBIG, f"{size} bytes; give max_bytes, or download the file", path)
            parts: list[bytes] = []
            left = _LARGEST_READ if max_bytes is None else max_bytes
            step = size + 1  # the whole file at once; what is growing, or has no size, comes in chunks
            while left > 0 and (part := os.read(fd, min(step, left))):
                parts.append(part)
                left -= len(part)
                step = _CHUNK
            return b"".join(parts)

    def write(self, path: str, data: bytes, mode: int) -> None:
        """See ``Sandbox.write_file``."""
        check_bytes("data", data)
        check_count("mode", mode, maximum=0o7777)
        with self._opened(path, _WRITE, directory=False, mode=mode) as fd, _told(path):
            _write_all(fd, data)

    def list(self, path: str) -> list[DirEntry]:
        """See ``Sandbox.list_dir``."""
        with self._opened(path, os.O_RDONLY, directory=True) as fd, _told(path):
            entries: list[DirEntry] = []
            for name in sorted(os.listdir(fd)):
                with contextlib.suppress(FileNotFoundError):
                    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    entries.append(DirEntry(name, _kind(status), status.st_size, stat.S_IMODE(status.st_mode)))
            return entries

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
        with self._opened(path, os.O_RDONLY) as fd, _told(path):
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                _download_tree(fd, Path(local))
            else:
                _download_file(fd, Path(local))

    def _upload_file(self, source: Path, path: str) -> None:
        with open(source, "rb", opener=_no_wait) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise SandboxFileError(errno.EINVAL, "not a regular file", str(source))
            mode = stat.S_IMODE(status.st_mode) | 0o600
            with self._opened(path, _WRITE, directory=False, mode=mode) as fd, _told(path):
                while chunk := file.read(_CHUNK):
                    _write_all(fd, chunk)

    @contextlib.contextmanager
    def _opened(self, path: str, flags: int, *, directory: bool | None = None, mode: int = 0o644) -> Generator[int]:
        fd = self._ask("open", path, flags=flags, mode=mode, parents=bool(flags & os.O_CREAT))[0]
        try:
            # The descriptor comes from inside, so its kind is judged here as well.
            kind = os.fstat(fd).st_mode
            if directory is False and not stat.S_ISREG(kind):
                number = errno.EISDIR if stat.S_ISDIR(kind) else errno.EINVAL
                raise SandboxFileError(number, os.strerror(number), path)
            if directory and not stat.S_ISDIR(kind):
                raise SandboxFileError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            yield fd
        finally:
            os.close(fd)

    def _ask(self, op: str, path: str, **details: object) -> list[int]:
        check_path(path)
        if "\0" in path:
            raise SandboxFileError(errno.EINVAL, "a path cannot hold a NUL byte", path)
        try:
            os.fsencode(path)
        except UnicodeEncodeError as error:
            raise SandboxFileError(errno.EILSEQ, "a path cannot hold half a surrogate pair", path) from error
        full = posixpath.join(self._workdir, path)
        try:
            return self._peer.ask({"op": op, "path": full, **details})[1]
        except Refused as error:
            raise SandboxFileError(error.errno, os.strerror(error.errno or 0), path) from error


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


def _kind(status: os.stat_result) -> Literal["file", "dir", "link", "other"]:
    if stat.S_ISREG(status.st_mode):
        return "file"
    if stat.S_ISDIR(status.st_mode):
        return "dir"
    return "link" if stat.S_ISLNK(status.st_mode) else "other"


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view[:_CHUNK]) :]


def _no_wait(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def _download_file(fd: int, target: Path) -> None:
    with open(target, "wb") as file:
        while chunk := os.read(fd, _CHUNK):
            file.write(chunk)
        os.fchmod(file.fileno(), stat.S_IMODE(os.fstat(fd).st_mode) & 0o777)


def _download_tree(fd: int, target: Path) -> None:
    """Walk by descriptors, one name at a time and never through a link, so that nothing can lead outside."""
    target.mkdir(parents=True, exist_ok=True)
    for name in os.listdir(fd):
        kind = _kind(os.stat(name, dir_fd=fd, follow_symlinks=False))
        if kind not in ("file", "dir"):
            continue
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        child = os.open(name, flags | (os.O_DIRECTORY if kind == "dir" else 0), dir_fd=fd)
        try:
            if kind == "dir":
                _download_tree(child, target / name)
            elif stat.S_ISREG(os.fstat(child).st_mode):
                _download_file(child, target / name)
        finally:
            os.close(child)

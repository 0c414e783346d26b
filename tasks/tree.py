"""The files of a sandbox's directory, read as one tar stream, compared on the host.

Nothing that an agent can change is trusted: no git, no shell, no time stamps; a stream that makes no sense is refused.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from forkgym.sandboxes.base import Sandbox
from forkgym.tasks.base import FileChange
from forkgym.tasks.errors import GradingError

HEADROOM = 64 << 20
READ_TIMEOUT = 120.0
# head ends the stream one byte above the ceiling, however much a sparse file pretends to hold.
_PACK = (
    '{ /usr/bin/tar --create --file=- --format=gnu --hard-dereference --directory="$0" '
    "--exclude='*/.git/*' --exclude='*/__pycache__/*' . ; echo \"tar ended with $?\" >&2; } | /usr/bin/head -c \"$1\""
)
# --touch: a build tool takes what is older than its last build for built, and an old date would hide a change.
_UNPACK = ("/usr/bin/tar", "-x", "--touch", "--file=-", "--no-same-owner", "--preserve-permissions", "--directory")
_CLEAN = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "TAR_OPTIONS": ""}


class TooLargeError(Exception):
    """A directory holds more than its ceiling."""


class HostileTreeError(Exception):
    """A tar stream holds what no directory holds."""


@dataclass(frozen=True)
class Node:
    """A path in a tree. ``mode`` holds the nine permission bits; ``data`` is kept for files, ``link`` for links."""

    kind: Literal["file", "link", "other"]
    mode: int = 0o644
    data: bytes | None = None
    link: str | None = None
    sha256: bytes = b""

    @property
    def executable(self) -> bool:
        return bool(self.mode & 0o111)

    def same(self, other: Node | None) -> bool:
        """Equal content, and equal in being executable or not: other permission bits follow the umask."""
        if other is None:
            return False
        mine = (self.kind, self.sha256, self.link, self.executable)
        return mine == (other.kind, other.sha256, other.link, other.executable)


@dataclass(frozen=True)
class Tree:
    """Paths of a directory. ``untracked``: made at set-up, but not part of the repository that stands there."""

    nodes: Mapping[str, Node]
    size: int
    untracked: frozenset[str] = field(default_factory=frozenset[str])

    def forget_data(self) -> Tree:
        """The same tree without contents: enough to compare with."""
        slim = {path: Node(n.kind, n.mode, None, n.link, n.sha256) for path, n in self.nodes.items()}
        return Tree(slim, self.size, self.untracked)


def read(box: Sandbox, directory: str, ceiling: int) -> Tree:
    """All that stands in ``directory`` of the sandbox, without the insides of ``.git`` and ``__pycache__``.

    Files that cannot be read are absent. Raises ``TooLargeError`` if the stream has more than ``ceiling`` bytes,
    ``HostileTreeError`` also if ``directory`` cannot be entered, ``GradingError`` if there is no tar, and
    ``SandboxError``.
    """
    command = ("/bin/sh", "-c", _PACK, directory, str(ceiling + 1))
    result = box.exec(command, cwd="/", env=_CLEAN, timeout=READ_TIMEOUT, max_output=None)
    if result.timed_out:
        raise TooLargeError(f"reading {directory} took more than {READ_TIMEOUT:g} s")
    if len(result.stdout) > ceiling:
        raise TooLargeError(f"{directory} holds more than {ceiling} bytes")
    problem = f"cannot read {directory}: {result.stderr.decode(errors='replace')[-500:]}"
    if not result.stdout and b"tar ended with 2" in result.stderr:
        raise HostileTreeError(problem)  # closed, removed or replaced; the fork that it was read from is sound
    if not result.stdout or b"tar ended with 127" in result.stderr:
        raise GradingError(problem)
    nodes = dict(_nodes(result.stdout))
    return Tree(nodes, len(result.stdout))


def write(box: Sandbox, directory: str, changes: Mapping[str, FileChange]) -> None:
    """Make the changes in ``directory`` of the sandbox, as its user: deletions first, then files and links.

    Raises ``GradingError`` if the sandbox refuses, and ``SandboxError``.
    """
    gone = [f"{directory}/{path}" for path, change in changes.items() if change.deleted]
    for chunk in _chunks(gone, 200):
        _checked(box, ("/bin/rm", "-r", "-f", "--", *chunk), None)
    kept = {path: change for path, change in changes.items() if not change.deleted}
    if kept:
        _checked(box, (*_UNPACK, directory), pack(kept))


def pack(changes: Mapping[str, FileChange]) -> bytes:
    """A tar stream of files and links."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
        for path in sorted(changes):
            change = changes[path]
            member = tarfile.TarInfo(path)
            member.mode = change.mode
            if change.data is None:
                member.type, member.linkname = tarfile.SYMTYPE, change.link or ""
                archive.addfile(member)
            else:
                member.size = len(change.data)
                archive.addfile(member, io.BytesIO(change.data))
    return stream.getvalue()


def unpack(stream: bytes) -> dict[str, Node]:
    """The files and links of a tar stream. Raises ``HostileTreeError``."""
    return dict(_nodes(stream))


def _nodes(stream: bytes) -> Iterator[tuple[str, Node]]:
    try:
        with tarfile.open(fileobj=io.BytesIO(stream), mode="r:", errors="surrogateescape") as archive:
            for member in archive:
                path = member.name.removeprefix("./")
                if path in (".", ""):
                    continue
                if path.startswith("/") or ".." in path.split("/"):
                    raise HostileTreeError(f"a path that leaves the directory: {path!r}")
                if not member.isdir():
                    yield path, _node(archive, member)
    except (tarfile.TarError, ValueError, OSError, EOFError) as error:
        raise HostileTreeError(f"not a tar stream: {error}") from error


def _node(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Node:
    mode = member.mode & 0o777
    if member.issym():
        return Node("link", 0o777, link=member.linkname, sha256=b"link")
    if member.isreg() and not member.issparse():
        file = archive.extractfile(member)
        data = file.read() if file else b""
        if len(data) != member.size:
            raise HostileTreeError(f"{member.name!r} is cut off")
        return Node("file", mode, data, sha256=hashlib.sha256(data).digest())
    return Node("other", mode, sha256=member.type)


def _checked(box: Sandbox, command: tuple[str, ...], stdin: bytes | None) -> None:
    result = box.exec(command, cwd="/", env=_CLEAN, stdin=stdin, timeout=READ_TIMEOUT)
    if not result.ok:
        problem = result.stderr.decode(errors="replace")[-500:] or f"exit code {result.exit_code}"
        raise GradingError(f"cannot place files with {command[0]}: {problem}")


def _chunks(items: list[str], size: int) -> Iterable[list[str]]:
    return (items[start : start + size] for start in range(0, len(items), size))

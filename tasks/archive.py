"""The files of a whole repository as one compressed tar: permissions and symbolic links are kept."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path

from forkgym.tasks import tree
from forkgym.tasks.base import FileChange
from forkgym.tasks.errors import TaskFormatError

MAX_BYTES = 256 << 20


def read(path: Path) -> dict[str, FileChange]:
    """The files and links of an archive, in stable order. Raises ``TaskFormatError``."""
    try:
        with gzip.open(path) as packed:
            stream = packed.read(MAX_BYTES + 1)
        if len(stream) > MAX_BYTES:
            raise TaskFormatError(f"{path}: holds more than {MAX_BYTES} bytes")
        nodes = tree.unpack(stream)
    except (tree.HostileTreeError, OSError, EOFError, zlib.error) as error:
        raise TaskFormatError(f"{path}: {error}") from error
    if strange := sorted(name for name, node in nodes.items() if node.kind == "other"):
        raise TaskFormatError(f"{path}: {strange[0]} is neither a file nor a link")
    return {name: FileChange(nodes[name].data, nodes[name].mode, nodes[name].link) for name in sorted(nodes)}


def pack(files: Mapping[str, FileChange]) -> bytes:
    """The archive that ``read`` reads; equal files give equal bytes."""
    return gzip.compress(tree.pack(files), mtime=0)

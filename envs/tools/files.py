"""What the file tools share: paths, line endings and numbered lines."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from forkgym.sandboxes.errors import SandboxFileError
from forkgym.tasks.base import Task

FILE_BYTES = 4 << 20  # the tools read no more of a file than this


def absolute(path: str, task: Task) -> str:
    """``path`` against the task's working directory, without ``.`` and ``..``."""
    return posixpath.normpath(posixpath.join(task.workdir, path))


def numbered(lines: Sequence[str], first: int) -> str:
    """Lines with their numbers, the first of them being number ``first``."""
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines, first))


def split_lines(text: str) -> list[str]:
    """Lines as an editor counts them: only a newline ends one, and a final newline does not open another."""
    return text.removesuffix("\n").split("\n") if text else []


def reason(error: SandboxFileError) -> str:
    """Why a file operation failed, in the kernel's words where it gave any."""
    return f"{error.strerror or error}."

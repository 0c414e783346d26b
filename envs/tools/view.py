"""Shows a file with line numbers, or a directory."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Any

from forkgym.envs.base import ToolResult
from forkgym.envs.text import decode
from forkgym.envs.tools.files import FILE_BYTES, absolute, numbered, reason, split_lines
from forkgym.sandboxes.base import DirEntry, Sandbox
from forkgym.sandboxes.errors import SandboxFileError
from forkgym.tasks.base import Task


class View:
    """Reads; changes nothing."""

    name = "view"
    description = "Show a file with line numbers, or list a directory. Give first and last line to see a part."
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "minLength": 1,
                "description": "file or directory",
                "examples": [".", "README.md"],
            },
            "first": {"type": "integer", "minimum": 1, "description": "first line to show", "examples": [1]},
            "last": {"type": "integer", "minimum": 1, "description": "last line to show", "examples": [20]},
        },
        "required": ["path"],
        "additionalProperties": False,
    }

    def run(self, box: Sandbox, task: Task, arguments: Mapping[str, Any], *, limit: float) -> ToolResult:
        """A file's lines, a directory's names, or why neither can be shown."""
        path = absolute(arguments["path"], task)
        first, last = arguments.get("first", 1), arguments.get("last")
        if last is not None and last < first:
            return ToolResult(f"last ({last}) is before first ({first}).", error=True)
        try:
            try:
                return ToolResult(_listing(path, box.list_dir(path)))
            except SandboxFileError as error:
                if error.errno != errno.ENOTDIR:
                    raise
            return _file(path, box.read_file(path, max_bytes=FILE_BYTES), first, last)
        except SandboxFileError as error:
            return ToolResult(f"Cannot show {path}: {reason(error)}", error=True)

    def fork(self) -> View:
        """It has no state."""
        return self


def _listing(path: str, entries: Sequence[DirEntry]) -> str:
    if not entries:
        return f"{path} is an empty directory."
    marks = {"dir": "/", "link": "@", "file": "", "other": "?"}
    return "\n".join(f"{entry.name}{marks[entry.kind]}" for entry in entries)


def _file(path: str, data: bytes, first: int, last: int | None) -> ToolResult:
    lines = split_lines(decode(data).replace("\r\n", "\n"))
    if not lines:
        return ToolResult(f"{path} is empty.")
    if first > len(lines):
        return ToolResult(f"{path} has {len(lines)} lines; there is no line {first}.", error=True)
    shown = numbered(lines[first - 1 : last], first)
    notes = ["[line endings: CRLF]"] if b"\r\n" in data else []
    if len(data) >= FILE_BYTES:
        notes.append(f"[only the first {FILE_BYTES} bytes were read]")
    return ToolResult("\n".join([shown, *notes]))

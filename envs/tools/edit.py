"""Changes files: create, replace a unique text, insert lines, undo.

Line endings are the file's: text is compared and shown with plain newlines, and what is written into a file takes the
ending of the lines around it. Bytes that are not UTF-8 survive an edit unchanged.
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forkgym.envs.base import ToolResult
from forkgym.envs.tools.files import FILE_BYTES, absolute, numbered, reason, split_lines
from forkgym.sandboxes.base import Sandbox
from forkgym.sandboxes.errors import SandboxFileError
from forkgym.tasks.base import Task

_NEEDS = {"create": ("file_text",), "str_replace": ("old_str", "new_str"), "insert": ("line", "new_str"), "undo": ()}
_UNDO_DEPTH = 50
_CONTEXT = 3  # lines shown around a change
_NEAR_COST = 2_000_000  # lines times characters beyond which near misses are not searched


@dataclass(frozen=True)
class _Change:
    """One undoable change; ``before`` is ``None`` if the file did not exist."""

    path: str
    before: bytes | None
    after: bytes
    mode: int


class _Refused(Exception):
    """The edit cannot be done; the text tells the agent why."""


class Edit:
    """Edits text files. ``undo`` takes back this tool's own changes to a path, newest first, at most 50 in all."""

    name = "edit"
    description = (
        "Change a file. create: write file_text. str_replace: replace old_str, which must occur exactly once, by "
        "new_str. insert: put new_str after line number `line` (0 is the top). undo: take back the last change."
    )
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "command": {"type": "string", "enum": list(_NEEDS)},
            "path": {
                "type": "string",
                "minLength": 1,
                "description": "the file",
                "examples": ["notes.txt", "README.md"],
            },
            "file_text": {"type": "string", "description": "create: the whole content"},
            "old_str": {"type": "string", "description": "str_replace: the text to replace"},
            "new_str": {"type": "string", "description": "str_replace, insert: the new text"},
            "line": {"type": "integer", "minimum": 0, "description": "insert: after this line", "examples": [0]},
        },
        "required": ["command", "path"],
        "additionalProperties": False,
    }

    def __init__(self) -> None:
        self._changes: list[_Change] = []

    def run(self, box: Sandbox, task: Task, arguments: Mapping[str, Any], *, limit: float) -> ToolResult:
        """Do one edit and show the lines around it, or say why it was not done."""
        command, path = arguments["command"], absolute(arguments["path"], task)
        missing = [name for name in _NEEDS[command] if name not in arguments]
        if missing:
            return ToolResult(f"{command} needs {' and '.join(missing)}.", error=True)
        try:
            if command == "undo":
                return ToolResult(self._undo(box, path))
            before = _read(box, path)
            if command == "create":
                return ToolResult(self._create(box, path, before, arguments["file_text"]))
            if before is None:
                raise _Refused(f"{path} does not exist.")
            text = _decode(before)
            edit = _replaced if command == "str_replace" else _inserted
            after, shown = edit(path, text, arguments)
            self._write(box, path, before, after.encode("utf-8", "surrogateescape"))
            return ToolResult(f"Edited {path}:\n{_printable(shown)}")
        except _Refused as error:
            return ToolResult(str(error), error=True)
        except SandboxFileError as error:
            return ToolResult(f"Cannot edit {path}: {reason(error)}", error=True)

    def fork(self) -> Edit:
        """A copy with the same undo history."""
        copy = Edit()
        copy._changes = list(self._changes)
        return copy

    def _create(self, box: Sandbox, path: str, before: bytes | None, text: str) -> str:
        self._write(box, path, before, text.encode())
        return f"{'Created' if before is None else 'Overwrote'} {path} ({len(split_lines(text))} lines)."

    def _write(self, box: Sandbox, path: str, before: bytes | None, after: bytes) -> None:
        mode = 0o644 if before is None else _mode(box, path)
        box.write_file(path, after, mode)
        self._changes = [*self._changes, _Change(path, before, after, mode)][-_UNDO_DEPTH:]

    def _undo(self, box: Sandbox, path: str) -> str:
        index = next((i for i in reversed(range(len(self._changes))) if self._changes[i].path == path), None)
        if index is None:
            raise _Refused(f"There is no change of {path} to undo.")
        change = self._changes[index]
        if _read(box, path) != change.after:
            raise _Refused(f"{path} was changed by something else since; undo would lose that. Edit it instead.")
        if change.before is None:
            box.exec(["rm", "--", path])
        else:
            box.write_file(path, change.before, change.mode)
        del self._changes[index]
        return f"Removed {path}, which did not exist before." if change.before is None else f"Restored {path}."


def _read(box: Sandbox, path: str) -> bytes | None:
    try:
        data = box.read_file(path, max_bytes=FILE_BYTES + 1)
    except SandboxFileError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    if len(data) > FILE_BYTES:
        raise _Refused(f"{path} is larger than {FILE_BYTES} bytes; use bash.")
    return data


def _mode(box: Sandbox, path: str) -> int:
    """The permission bits to keep; of the file a link points to."""
    result = box.exec(["stat", "-L", "-c", "%a", "--", path])
    return int(result.stdout, 8) & 0o777 if result.ok else 0o644


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _printable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")


def _raw_offset(text: str, offset: int) -> int:
    """Where character ``offset`` of ``_plain(text)`` stands in ``text``."""
    raw = 0
    while offset > 0:
        step = text.find("\r\n", raw)
        if step < 0 or step - raw >= offset:
            return raw + offset
        offset -= step - raw + 1
        raw = step + 2
    return raw


def _ending(region: str, text: str) -> str:
    """The line ending to write: that of the replaced lines, else the one the file uses most."""
    for part in (region, text):
        if "\n" in part:
            return "\r\n" if 2 * part.count("\r\n") > part.count("\n") else "\n"
    return "\n"


def _replaced(path: str, text: str, arguments: Mapping[str, Any]) -> tuple[str, str]:
    """The file's new text, and the changed lines to show."""
    old, new = _plain(arguments["old_str"]), _plain(arguments["new_str"])
    plain = _plain(text)
    if not old:
        raise _Refused("old_str is empty; use insert or create.")
    if old == new:
        raise _Refused("old_str and new_str are the same.")
    found = _positions(plain, old)
    if not found:
        raise _Refused(f"old_str does not occur in {path}.{_near_misses(plain, old)}")
    if len(found) > 1:
        lines = ", ".join(str(plain.count("\n", 0, at) + 1) for at in found)
        raise _Refused(f"old_str occurs {len(found)} times in {path}, at lines {lines}; add lines around it.")
    begin, end = _raw_offset(text, found[0]), _raw_offset(text, found[0] + len(old))
    after = text[:begin] + new.replace("\n", _ending(text[begin:end], text)) + text[end:]
    return after, _around(_plain(after), plain.count("\n", 0, found[0]), new.count("\n") + 1)


def _inserted(path: str, text: str, arguments: Mapping[str, Any]) -> tuple[str, str]:
    """The file's new text, and the inserted lines to show."""
    line, new = arguments["line"], _plain(arguments["new_str"])
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if line > len(lines):
        raise _Refused(f"{path} has {len(lines)} lines; cannot insert after line {line}.")
    ending = _ending("", text)
    begin = sum(len(part) + 1 for part in lines[:line])
    block = new.removesuffix("\n").replace("\n", ending)
    if begin > len(text):  # the last line has no newline, and the inserted one will have none either
        return text + ending + block, _around(_plain(text + ending + block), line, block.count("\n") + 1)
    after = text[:begin] + block + ending + text[begin:]
    return after, _around(_plain(after), line, block.count("\n") + 1)


def _positions(text: str, part: str) -> list[int]:
    """Every place ``part`` starts, overlapping ones too."""
    found: list[int] = []
    at = text.find(part)
    while at >= 0:
        found.append(at)
        at = text.find(part, at + 1)
    return found


def _around(text: str, start: int, count: int) -> str:
    """``count`` lines from 0-based line ``start``, with some lines around them."""
    first = max(0, start - _CONTEXT)
    return numbered(split_lines(text)[first : start + count + _CONTEXT], first + 1)


def _near_misses(text: str, old: str) -> str:
    """Up to three places that look most like ``old``, with their lines."""
    lines, wanted = split_lines(text), split_lines(old)
    target = "\n".join(line.strip() for line in wanted)
    if not lines or len(lines) * len(target) > _NEAR_COST:
        return ""
    matcher = difflib.SequenceMatcher(autojunk=False, b=target)
    scored: list[tuple[float, int]] = []
    for start in range(max(1, len(lines) - len(wanted) + 1)):
        matcher.set_seq1("\n".join(line.strip() for line in lines[start : start + len(wanted)]))
        if matcher.real_quick_ratio() > 0.6 and matcher.quick_ratio() > 0.6 and (ratio := matcher.ratio()) > 0.6:
            scored.append((-ratio, start))
    best = sorted(scored)[:3]
    if not best:
        return ""
    shown = "\n".join(
        numbered(lines[start : start + len(wanted)], start + 1) for _, start in sorted(best, key=lambda b: b[1])
    )
    cause = " Only white space differs." if best[0][0] == -1.0 else ""
    return f"{cause} Nearest lines:\n{shown}"

"""Finds lines in files by a pattern."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forkgym.envs.base import ToolResult
from forkgym.envs.text import decode
from forkgym.envs.tools.files import absolute
from forkgym.sandboxes.base import ExecResult, Sandbox
from forkgym.tasks.base import Task

_TIMEOUT = 30.0
_LINES, _COLUMNS = 100, 300
_OUTPUT_BYTES = 1 << 20
_MISSING = 127  # the exit code of a command that the image has not
# Both look into hidden and ignored files, but not into .git or binary files, so that a search finds the same in every
# image. Neither reads a configuration that the agent could have left.
_RIPGREP = (
    *("rg", "--no-config", "--no-heading", "--with-filename", "--line-number", "--color=never"),
    *("--hidden", "--no-ignore", "--glob=!.git"),
)
_GREP = (
    *("grep", "--recursive", "--with-filename", "--line-number", "--color=never"),
    *("--binary-files=without-match", "--exclude-dir=.git"),
)


class Search:
    """Searches with ripgrep where the image has it, else with grep; changes nothing."""

    name = "search"
    description = (
        "Find lines that match a regular expression (or, with fixed, a plain text) in a file or below a directory. "
        f"Shows path, line number and line; at most {_LINES} lines."
    )
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "pattern": {
                "type": "string",
                "minLength": 1,
                "description": "extended regular expression",
                "examples": ["def ", "TODO", "import"],
            },
            "path": {
                "type": "string",
                "minLength": 1,
                "description": "file or directory; the working directory if left out",
                "examples": ["."],
            },
            "fixed": {"type": "boolean", "description": "take the pattern as plain text"},
            "ignore_case": {"type": "boolean", "description": "upper and lower case are the same"},
        },
        "required": ["pattern"],
        "additionalProperties": False,
    }

    def run(self, box: Sandbox, task: Task, arguments: Mapping[str, Any], *, limit: float) -> ToolResult:
        """The matching lines in the order of paths, or that there are none."""
        if limit <= 0:
            return ToolResult("[not run: the time is up]")
        path = absolute(arguments.get("path", "."), task)
        short = path.removeprefix(task.workdir).lstrip("/") or "."
        where = short if path.startswith(task.workdir) else path
        timeout = min(_TIMEOUT, limit)
        best, fallback = _commands(arguments)

        def search(command: list[str]) -> ExecResult:
            return box.exec([*command, "--", where], cwd=task.workdir, timeout=timeout, max_output=_OUTPUT_BYTES)

        result = search(best)
        if result.exit_code == _MISSING:
            result = search(fallback)
        if result.timed_out:
            return ToolResult(f"[the search took longer than {timeout:g} s; search a smaller directory]", error=True)
        if result.exit_code > 1 and not result.stdout:
            return ToolResult(f"Cannot search {path}: {decode(result.stderr).strip()}", error=True)
        return ToolResult(_shown(decode(result.stdout)))

    def fork(self) -> Search:
        """It has no state."""
        return self


def _commands(arguments: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The same search by ripgrep and by grep."""
    fixed = bool(arguments.get("fixed"))
    flags = [f"--regexp={arguments['pattern']}", *(["--ignore-case"] if arguments.get("ignore_case") else [])]
    return (
        [*_RIPGREP, *(["--fixed-strings"] if fixed else []), *flags],
        [*_GREP, "--fixed-strings" if fixed else "--extended-regexp", *flags],
    )


def _shown(text: str) -> str:
    lines = [line.removeprefix("./") for line in text.split("\n") if line]
    lines.sort(key=lambda line: line.partition(":")[0])  # in the order of paths, whatever tool searched
    if not lines:
        return "No line matches."
    shown = [line if len(line) <= _COLUMNS else f"{line[:_COLUMNS]}…" for line in lines[:_LINES]]
    more = len(lines) - _LINES
    return "\n".join([*shown, *([f"[{more} more lines match; narrow the search]"] if more > 0 else [])])

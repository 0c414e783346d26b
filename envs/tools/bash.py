"""A persistent bash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forkgym.envs.base import ToolResult
from forkgym.envs.text import decode
from forkgym.sandboxes.base import ExecResult, Sandbox
from forkgym.tasks.base import Task

_OUTPUT_BYTES = 1 << 16  # head and tail kept; an observation holds less


class Bash:
    """Runs commands in one shell per episode: cwd, exported variables and functions stay.

    ``default`` and ``ceiling`` are seconds. A requested timeout above the ceiling, or of zero or less, means the
    ceiling; no command can run for ever.
    """

    name = "bash"
    description = (
        "Run a bash command. The shell keeps its directory, variables and functions between calls. "
        "Shows stdout and stderr together, and the exit code if it is not 0."
    )

    def __init__(self, default: float = 60.0, ceiling: float = 300.0) -> None:
        self.default = min(default, ceiling)
        self.ceiling = ceiling
        self.parameters: Mapping[str, Any] = {
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "the command", "examples": ["ls", "pwd", "cat README.md"]},
                "timeout": {
                    "type": "number",
                    "description": f"seconds; {default:g} if left out, at most {ceiling:g}",
                    "examples": [5, 10, default],
                },
            },
            "required": ["command"],
            "additionalProperties": False,
        }

    def run(self, box: Sandbox, task: Task, arguments: Mapping[str, Any], *, limit: float) -> ToolResult:
        """Run the command and describe how it ended."""
        if limit <= 0:
            return ToolResult("[not run: the time is up]")
        timeout = arguments.get("timeout", self.default)
        if timeout <= 0 or timeout > self.ceiling:
            timeout = self.ceiling
        timeout = min(float(timeout), limit)
        shell = box.shell()
        restarts = shell.restarts
        result = shell.run(arguments["command"], timeout=timeout, max_output=_OUTPUT_BYTES)
        return ToolResult(_report(result, timeout, shell.restarts > restarts))

    def fork(self) -> Bash:
        """The shell belongs to the sandbox, which forks it; the tool has no state of its own."""
        return self


def _report(result: ExecResult, timeout: float, restarted: bool) -> str:
    """The output as it was, then a line for each thing the agent must know and cannot see in it."""
    notes: list[str] = []
    if result.truncated:
        notes.append(f"[output was {result.total_bytes} bytes; its middle was dropped]")
    if result.timed_out:
        notes.append(f"[timed out after {timeout:g} s and was killed]")
    elif result.oom_killed:
        notes.append("[killed: out of memory]")
    elif result.disk_full:
        notes.append("[killed: over the limit of the disk; remove files before you go on]")
    elif result.exit_code != 0:
        notes.append(f"[exit code {result.exit_code}]")
    if restarted:
        notes.append("[the shell was restarted: directory and exported variables were kept, the rest is gone]")
    text = decode(result.stdout)
    if not notes:
        return text or "[no output]"
    return text + ("\n" if text and not text.endswith("\n") else "") + "\n".join(notes)

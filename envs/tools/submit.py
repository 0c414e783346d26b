"""The tool that ends an episode. Nothing a command prints can do that, and nothing it prints can prevent it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forkgym.envs.base import ToolResult
from forkgym.sandboxes.base import Sandbox
from forkgym.tasks.base import Task


class Submit:
    """Ends the episode; what is in the working directory is graded."""

    name = "submit"
    description = "Finish: the files as they are now are graded. Nothing can be changed afterwards."
    parameters: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}

    def run(self, box: Sandbox, task: Task, arguments: Mapping[str, Any], *, limit: float) -> ToolResult:
        """Nothing runs in the sandbox."""
        return ToolResult("Submitted.", submit=True)

    def fork(self) -> Submit:
        """It has no state."""
        return self

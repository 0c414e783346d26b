"""Types that tools, rewards and the environment share. The environment itself is ``forkgym.envs.core.CodingEnv``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict

from forkgym.sandboxes.base import Sandbox
from forkgym.tasks.base import Submission, Task, Verdict

FailureKind = Literal["sandbox", "engine", "grader", "harness"]
TruncationReason = Literal["turns", "tokens", "time", "context"]
RewardMode = Literal["final", "delta", "potential"]


class ToolCall(TypedDict):
    """An action: ``{"tool": "bash", "arguments": {"command": "ls"}}``."""

    tool: str
    arguments: dict[str, Any]


class Untyped(str):
    """An argument from a format without types: the environment reads it as the tool's schema says."""


@dataclass(frozen=True)
class Malformed:
    """Model output that is no tool call. As an action it is answered with ``message`` and counts as a turn."""

    message: str


@dataclass(frozen=True)
class ToolResult:
    """What a tool gave back. ``submit`` ends the episode; ``error`` marks text that reports a wrong call."""

    text: str
    submit: bool = False
    error: bool = False


class Tool(Protocol):
    """One tool. ``parameters`` is a JSON schema of an object, as in OpenAI function calling."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    def run(self, box: Sandbox, task: Task, arguments: Mapping[str, Any], *, limit: float) -> ToolResult:
        """Act within ``limit`` seconds, which is what is left of the episode.

        ``arguments`` are valid under ``parameters``. What they get wrong beyond that is reported in the result; only
        ``SandboxError`` may escape.
        """
        ...

    def fork(self) -> Tool:
        """A copy with its own state (undo history and the like) for a forked episode."""
        ...


@dataclass(frozen=True)
class Call:
    """One tool call that was run, and the text it was answered with."""

    tool: str
    arguments: Mapping[str, Any]
    answer: str


@dataclass(frozen=True)
class Evidence:
    """All that a reward may look at: the verdict, what was submitted for which task, and the calls that led there."""

    verdict: Verdict
    task: Task
    submission: Submission
    calls: tuple[Call, ...] = ()


RewardFunction = Callable[[Evidence], float]
"""From the evidence to a number: named reward functions, or any ``module:function`` of that signature."""

"""An agent with tool calls: the tools' definitions in its system message, one call a turn."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from forkgym.agents.base import ChatFormat
from forkgym.agents.loops.bash import BashAgent
from forkgym.envs.core import CodingEnv
from forkgym.errors import ConfigError
from forkgym.registry import unknown

SYSTEM = "You solve tasks in a code repository with the tools given. When you are done, call submit."
_TOOLS = "# Tools\n\nYou can call these functions; their signatures stand within <tools></tools>:"
_HOW = {
    "hermes": (
        "Each turn, make one call, a JSON object within <tool_call></tool_call>:\n"
        '<tool_call>\n{"name": NAME, "arguments": {ARGUMENT: VALUE}}\n</tool_call>'
    ),
    "xml": "Each turn, make one call:\n<function=NAME>\n<parameter=ARGUMENT>\nVALUE\n</parameter>\n</function>",
}


class ToolsAgent(BashAgent):
    """Like ``BashAgent``, but the model calls the environment's tools in the format ``actions``: ``hermes`` or ``xml``.

    The system message is ``system`` and then the definitions of the tools. Observations come in messages of
    ``answer_role`` within ``<tool_response>`` tags.
    """

    def __init__(
        self,
        format: ChatFormat,
        *,
        system: str = SYSTEM,
        examples: Sequence[Mapping[str, Any]] = (),
        actions: str = "hermes",
        observation_chars: int | None = None,
        answer_role: str = "tool",
        name: str = "tools",
    ) -> None:
        super().__init__(
            format, system=system, examples=examples, actions=actions, observation_chars=observation_chars, name=name
        )
        if actions not in _HOW:
            raise ConfigError(unknown("format of tool calls", actions, _HOW))
        self._how = _HOW[actions]
        self._answer_role = answer_role

    def _opening(self, env: CodingEnv) -> list[Mapping[str, Any]]:
        tools = "\n".join(json.dumps(tool) for tool in env.tools)
        content = f"{self._system}\n\n{_TOOLS}\n<tools>\n{tools}\n</tools>\n\n{self._how}"
        return [{"role": "system", "content": content}, *self._examples]

    def _message(self, observation: str) -> Mapping[str, Any]:
        return {"role": self._answer_role, "content": f"<tool_response>\n{observation}\n</tool_response>"}

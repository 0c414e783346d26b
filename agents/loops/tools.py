"""An agent with tool calls: the tools as the model's own chat format defines and calls them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from forkgym.agents.base import Call, ChatFormat
from forkgym.agents.formats.calls import typed_calls
from forkgym.agents.loops.bash import BashAgent, Count
from forkgym.envs.base import Malformed, ToolCall
from forkgym.envs.core import CodingEnv
from forkgym.errors import ConfigError
from forkgym.registry import unknown

SYSTEM = "You solve tasks in a code repository with the tools given. When you are done, call submit."
_XML = (
    "# Tools\n\nYou can call these functions; their signatures stand within <tools></tools>:\n<tools>\n{tools}\n"
    "</tools>\n\nEach turn, make one call:\n<function=NAME>\n<parameter=ARGUMENT>\nVALUE\n</parameter>\n</function>"
)
_ACTIONS = ("native", "xml")


class ToolsAgent(BashAgent):
    """Like ``BashAgent``, but the model calls the environment's tools.

    ``actions`` is ``native``, where the chat format writes the definitions and reads the calls, or ``xml``, where the
    system message defines the tools and each turn holds one ``<function=NAME>`` element.

    The calls of one turn are run in their order until the episode ends. Each is a step of the environment and costs one
    of its turns; each is answered by one message of the role ``tool``. What is no call, or one that can't be read, is
    one more step, answered by a ``user`` message that says what is wrong.
    """

    SYSTEM = SYSTEM

    def __init__(
        self,
        format: ChatFormat,
        *,
        system: str | None = SYSTEM,
        examples: Sequence[Mapping[str, Any]] = (),
        actions: str = "native",
        observation_chars: Count | None = None,
        prompt: str | None = None,
        compact_at: Count | None = None,
        privileged: bool = False,
        name: str = "tools",
    ) -> None:
        if actions not in _ACTIONS:
            raise ConfigError(unknown("format of tool calls", actions, list(_ACTIONS)))
        self._native = actions == "native"
        super().__init__(
            format,
            system=system,
            examples=examples,
            actions="hermes" if self._native else actions,
            observation_chars=observation_chars,
            prompt=prompt,
            compact_at=compact_at,
            privileged=privileged,
            name=name,
        )

    def _opening(self, env: CodingEnv, values: Mapping[str, str]) -> list[Mapping[str, Any]]:
        messages = super()._opening(env, values)
        if self._native:
            return messages
        tools = _XML.format(tools="\n".join(json.dumps(tool) for tool in env.tools))
        system = [messages.pop(0)["content"]] if messages[0]["role"] == "system" else []
        return [{"role": "system", "content": "\n\n".join([*system, tools])}, *messages]

    def _start(self, env: CodingEnv, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        return self.format.start(messages, env.tools) if self._native else self.format.start(messages)

    def _actions(self, env: CodingEnv, ids: Sequence[int]) -> list[tuple[ToolCall | Malformed, str]]:
        if not self._native:
            return [(action, "tool") for action, _ in super()._actions(env, ids)]
        turn = typed_calls(self.format.parse(ids), env.tools)
        actions = [(call_action(call), "tool") for call in turn.calls]
        if turn.malformed:
            return [*actions, (Malformed(f"A tool call {turn.malformed}."), "user")]
        names = ", ".join(tool["function"]["name"] for tool in env.tools)
        return actions or [(Malformed(f"Found no tool call. Each turn, call at least one of: {names}."), "user")]


def call_action(call: Call) -> ToolCall | Malformed:
    """What a call asks the environment to do."""
    try:
        arguments: Any = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return Malformed(f"The arguments of {call.name} are not a JSON object.")
    return {"tool": call.name, "arguments": arguments}

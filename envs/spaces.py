"""Gymnasium spaces for text and for tool calls.

Both work with ``gymnasium.vector``: a batch of n is a ``Tuple`` of n spaces, and batched values are tuples.
Sampling draws only from the space's own generator, so it does not depend on ``PYTHONHASHSEED``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from gymnasium.spaces import Space

from forkgym.envs.base import Tool, ToolCall, Untyped
from forkgym.envs.schema import check_schema, is_text, problem, random_text, sample
from forkgym.errors import ConfigError
from forkgym.registry import unknown

_LONGEST_SAMPLE = 64


class UnicodeText(Space[str]):
    """Every valid string of at most ``max_length`` code points: empty, newlines, escapes, any script.

    Lone surrogates are the only code points left out, because UTF-8 and JSON cannot carry them.
    """

    def __init__(self, max_length: int, seed: int | np.random.Generator | None = None) -> None:
        if max_length < 0:
            raise ConfigError(f"max_length must be at least 0, got {max_length}")
        self.max_length = max_length
        super().__init__(seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Text of any length has no fixed-size array form."""
        return False

    def sample(self, mask: None = None, probability: None = None) -> str:
        """Short random text. Masks are refused: this space has no finite set to mask."""
        _refuse_mask(mask, probability)
        return random_text(self.np_random, 0, min(self.max_length, _LONGEST_SAMPLE))

    def contains(self, x: Any) -> bool:
        """True for a valid ``str`` that is not too long."""
        return is_text(x) and len(x) <= self.max_length

    def __repr__(self) -> str:
        return f"UnicodeText({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and self.max_length == other.max_length


class ToolCalls(Space[ToolCall]):
    """Calls of the given tools: ``{"tool": name, "arguments": {...}}`` with arguments valid under the tool's schema."""

    def __init__(
        self, tools: Sequence[Tool] | Mapping[str, Mapping[str, Any]], seed: int | np.random.Generator | None = None
    ) -> None:
        """``tools`` are tool objects, or a mapping from name to JSON schema."""
        if isinstance(tools, Mapping):
            self.schemas: dict[str, Mapping[str, Any]] = dict(tools)
        else:
            self.schemas = {tool.name: tool.parameters for tool in tools}
        if not self.schemas:
            raise ConfigError("a tool-call space needs at least one tool")
        for name, schema in self.schemas.items():
            check_schema(schema, name)
        super().__init__(seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Tool calls have no fixed-size array form."""
        return False

    def sample(self, mask: None = None, probability: None = None) -> ToolCall:
        """A valid call: the tool uniformly, its arguments from the schema's examples or at random."""
        _refuse_mask(mask, probability)
        names = list(self.schemas)
        name = names[int(self.np_random.integers(len(names)))]
        return {"tool": name, "arguments": sample(self.schemas[name], self.np_random)}

    def contains(self, x: Any) -> bool:
        """True if ``problem`` finds nothing wrong."""
        return self.problem(x) is None

    def typed(self, action: Any) -> Any:
        """The call with every ``Untyped`` argument as the number, truth value, list or object that its schema asks for.

        What cannot be read so stays text, for ``problem`` to name; what is no call stays as it is.
        """
        match action:
            case {"tool": str(name), "arguments": dict()}:
                call = cast("dict[str, Any]", action)
                properties = self.schemas.get(name, {}).get("properties", {})
                typed = {
                    key: typed_value(value, properties.get(key, {})) if isinstance(value, Untyped) else value
                    for key, value in call["arguments"].items()
                }
                return {**call, "arguments": typed}
            case _:
                return action

    def problem(self, x: Any) -> str | None:
        """What is wrong with an action, in words for the agent, or ``None``. Never raises, whatever ``x`` is."""
        try:
            return self._problem(x)
        except Exception as error:  # of the value itself: its repr, its hash, a number too long to be written out
            return f"it cannot be read ({type(error).__name__})"

    def _problem(self, x: Any) -> str | None:
        if not isinstance(x, dict):
            return f'an action is {{"tool": name, "arguments": {{...}}}}, got {type(x).__name__}'
        action = cast("dict[Any, Any]", x)
        if set(action) != {"tool", "arguments"}:
            return f"an action has exactly the keys 'tool' and 'arguments', got {sorted(map(repr, action))}"
        name = action["tool"]
        if not isinstance(name, str) or name not in self.schemas:
            return unknown("tool", name, self.schemas) + "."
        return problem(self.schemas[name], action["arguments"], name)

    def to_jsonable(self, sample_n: Iterable[ToolCall]) -> list[Any]:
        """Calls are JSON already; copies, so that the caller may change them."""
        return [{"tool": call["tool"], "arguments": dict(call["arguments"])} for call in sample_n]

    def from_jsonable(self, sample_n: list[Any]) -> list[ToolCall]:
        """The inverse of ``to_jsonable``."""
        return [ToolCall(tool=call["tool"], arguments=dict(call["arguments"])) for call in sample_n]

    def __repr__(self) -> str:
        return f"ToolCalls({', '.join(self.schemas)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToolCalls) and self.schemas == other.schemas


def typed_value(text: str, schema: Mapping[str, Any]) -> Any:
    """A text without a type as the number, truth value, list or object that ``schema`` asks for; else the text."""
    kind = schema.get("type")
    if kind is None or kind == "string" or "string" in kind:
        return str(text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return str(text)


def _refuse_mask(mask: object, probability: object) -> None:
    if mask is not None or probability is not None:
        raise ConfigError("this space cannot be masked: sample() takes no mask and no probability")

"""ChatML, as SmolLM2 and many other models were tuned on, written incrementally as token ids.

    <|im_start|>system\\n...<|im_end|>\\n<|im_start|>user\\n...<|im_end|>\\n<|im_start|>assistant\\n

Every piece of text between two special tokens is encoded on its own, exactly as the whole would be, since special
tokens split the text before it is encoded. So pieces can be appended, and what was sampled is never encoded again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forkgym.agents.base import Turn
from forkgym.agents.tokenizers import Tokenizer
from forkgym.errors import ConfigError


class ChatML:
    """A ``ChatFormat``. ``default_system`` opens conversations that bring no system message (``None``: nothing)."""

    name = "chatml"

    def __init__(self, tokenizer: Tokenizer, default_system: str | None = None) -> None:
        self.tokenizer = tokenizer
        self.default_system = default_system
        self._start = tokenizer.special("<|im_start|>")
        self._end = tokenizer.special("<|im_end|>")
        self._newline = tokenizer.encode("\n")
        self._header = [self._start, *tokenizer.encode("assistant\n")]
        self.stop_ids: tuple[int, ...] = (self._end,)

    def start(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Ids of the opening messages plus ``<|im_start|>assistant\\n``."""
        if tools:
            raise ConfigError("ChatML alone has no place for tools")
        if self.default_system is not None and (not messages or messages[0].get("role") != "system"):
            messages = [{"role": "system", "content": self.default_system}, *messages]
        return self._render(messages)

    def extend(self, ids: Sequence[int], messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """``ids``, then ``<|im_end|>`` unless the model emitted it, a newline, the messages and the next header."""
        closing = [] if ids and ids[-1] == self._end else [self._end]
        return [*ids, *closing, *self._newline, *self._render(messages)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of one sampled turn, without its closing ``<|im_end|>``."""
        return self.tokenizer.decode(ids[:-1] if ids and ids[-1] == self._end else ids)

    def parse(self, ids: Sequence[int]) -> Turn:
        """The text, as it is: ChatML alone knows no tool calls."""
        return Turn(self.decode(ids))

    def _render(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        ids: list[int] = []
        for message in messages:
            role, content = message.get("role"), message.get("content")
            if not isinstance(role, str) or not isinstance(content, str):
                raise ConfigError(f"a ChatML message needs text for role and content, got {dict(message)!r:.200}")
            ids += [self._start, *self.tokenizer.encode(f"{role}\n{content}"), self._end, *self._newline]
        return ids + self._header

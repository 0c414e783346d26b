"""Chat formats as data: a ``Family`` says how one model family writes a conversation, ``Chat`` turns it into token ids.

Special tokens split a text before it is encoded, so each text between two of them is encoded on its own, exactly as
the whole would be. Pieces can therefore be appended, and what was sampled is never encoded again.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from forkgym.agents.base import Call, Turn
from forkgym.agents.tokenizers import Tokenizer, require_pieces
from forkgym.envs.calls import Reading
from forkgym.errors import ConfigError

Message = Mapping[str, Any]
Tools = Sequence[Mapping[str, Any]]
THINK, END_THINK = "<think>", "</think>"


class Layout(str):
    """Text that a format writes itself, in which control tokens are meant. In all other text they are only text."""

    __slots__ = ()


Opening = Callable[[str | None, Tools], tuple[list[str], list[str]]]


@dataclass(frozen=True)
class Family:
    """How one model family writes a conversation. Every text here is ``Layout``; ``{role}`` stands for the role.

    - ``turns``: what stands before and after what a role says; ``*`` is any other role.
    - ``opening``: from the system message and the tools to what the system turn says (none if empty), and to what the
      first user turn says before its own text.
    - ``answer``: what stands before and after the text of a tool. ``group`` joins consecutive answers in one turn; with
      ``None`` each has its own. ``quote`` writes an answer as a JSON string.
    - ``write`` and ``read``: calls as pieces, and a sampled text as calls. ``gap`` stands between text and calls.
    - ``lead``: what the header of a sampled turn ends with. ``direct``: no header after the answers of tools.
    - ``specials``: control tokens that the tokenizer must have. ``tags``: control tokens if it has them, else text.
    - ``ends``: tokens that close a turn too. ``stops``: tokens that end sampling and leave the turn to be closed.
    """

    name: str
    specials: Sequence[str]
    turns: Mapping[str, tuple[str, str]]
    opening: Opening
    answer: tuple[str, str]
    write: Callable[[Sequence[Call]], list[str]]
    read: Callable[[str, bool], Reading]
    begin: str = ""
    group: str | None = None
    quote: bool = False
    gap: str = ""
    lead: str = ""
    direct: bool = False
    strip: bool = False
    tags: Sequence[str] = ()
    ends: Sequence[str] = ()
    stops: Sequence[str] = ()


class Chat:
    """A ``ChatFormat`` of one family.

    ``default_system`` opens conversations that bring no system message (``None``: nothing). ``strict`` reads only calls
    that are complete and in the family's own syntax; see ``forkgym.envs.calls`` for what is forgiven else.
    """

    def __init__(
        self, family: Family, tokenizer: Tokenizer, *, default_system: str | None = None, strict: bool = False
    ) -> None:
        require_pieces(tokenizer)
        self.name = family.name
        self.family = family
        self.tokenizer = tokenizer
        self.default_system = default_system
        self.strict = strict
        self._ids = {name: tokenizer.special(name) for name in family.specials}
        self._ids |= _present(tokenizer, family.tags)
        self._marks = re.compile("|".join(map(re.escape, sorted(self._ids, key=len, reverse=True))))
        (self._end, *self._after) = self._encode([Layout(family.turns["assistant"][1])])
        self._closers = (self._end, *_present(tokenizer, family.ends).values())
        self.stop_ids: tuple[int, ...] = (*self._closers, *_present(tokenizer, family.stops).values())

    def start(self, messages: Sequence[Message], tools: Tools = ()) -> list[int]:
        """Ids of the opening messages, the tools, and the header that asks for an assistant turn."""
        system, rest = self.default_system, list(messages)
        if rest and role_of(rest[0]) == "system":
            system = text_of(rest.pop(0))
        said, prefix = self.family.opening(system, tools)
        pieces: list[str] = [Layout(self.family.begin)]
        if said:
            pieces += self._turn("system", said)
        if prefix and (not rest or role_of(rest[0]) != "user"):
            rest.insert(0, {"role": "user", "content": ""})
        return self._encode([*pieces, *self._render(rest, prefix)])

    def extend(self, ids: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """``ids``, its turn closed unless the model closed it, the messages and the next header."""
        closing = [] if ids and ids[-1] in self._closers else [self._end]
        return [*ids, *closing, *self._after, *self._encode(self._render(messages))]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of one sampled turn, without its closing token."""
        return self.tokenizer.decode(ids[:-1] if ids and ids[-1] in self.stop_ids else ids)

    def parse(self, ids: Sequence[int]) -> Turn:
        """What one sampled turn says."""
        opened = self.family.lead.rstrip().endswith(THINK)
        cut = not ids or ids[-1] not in self.stop_ids
        reasoning, text = split_reasoning(self.decode(ids), opened=opened, cut=cut)
        reading = self.family.read(text, self.strict)
        calls = tuple(Call(call.name, call.arguments, call.untyped) for call in reading.calls)
        return Turn(reading.text, reasoning, calls, reading.problem)

    def _render(self, messages: Sequence[Message], prefix: Sequence[str] = ()) -> list[str]:
        """The pieces of messages and of the next header; ``prefix`` goes into the first."""
        pieces: list[str] = []
        after_tool = False
        for is_tool, group in itertools.groupby(messages, key=lambda message: role_of(message) == "tool"):
            if is_tool:
                pieces += self._answers([text_of(message) for message in group])
            else:
                for message in group:
                    pieces += self._turn(role_of(message), [*prefix, *self._says(message)], headless=after_tool)
                    prefix, after_tool = (), False
            after_tool = is_tool and self.family.direct
        return pieces if after_tool else [*pieces, Layout(self.family.turns["assistant"][0] + self.family.lead)]

    def _turn(self, role: str, said: Sequence[str], headless: bool = False) -> list[str]:
        turns = self.family.turns
        if role not in turns and "*" not in turns:
            raise ConfigError(f"{self.name} has no role {role!r}; it has {', '.join(turns)}")
        before, after = turns.get(role) or turns["*"]
        header: list[str] = [Layout(before)]
        if "{role}" in before:
            left, right = before.split("{role}")
            header = [Layout(left), role, Layout(right)]
        return [*([] if headless and role == "assistant" else header), *said, Layout(after)]

    def _answers(self, texts: Sequence[str]) -> list[str]:
        before, after = self.family.answer
        shown = [json.dumps(text, ensure_ascii=False) for text in texts] if self.family.quote else texts
        answers = [[Layout(before), text, Layout(after)] for text in shown]
        if self.family.group is None:
            return [piece for answer in answers for piece in self._turn("tool", answer)]
        joined = [piece for answer in answers for piece in (Layout(self.family.group), *answer)]
        return self._turn("tool", joined[1:])

    def _says(self, message: Message) -> list[str]:
        """What a message that is no answer of a tool says: reasoning, text, calls."""
        calls = calls_of(message) if role_of(message) == "assistant" else []
        reasoning = str(message.get("reasoning_content") or "") if role_of(message) == "assistant" else ""
        text = text_of(message, optional=bool(calls or reasoning))
        text = text.strip() if self.family.strip else text
        pieces: list[str] = []
        if reasoning:
            text = text.lstrip("\n")
            pieces = [Layout(f"{THINK}\n"), reasoning.strip("\n"), Layout(f"\n{END_THINK}\n\n")]
        pieces.append(text)
        if calls:
            pieces += [Layout(self.family.gap if text else ""), *self.family.write(calls)]
        return pieces

    def _encode(self, pieces: Sequence[str]) -> list[int]:
        ids: list[int] = []
        text = ""
        for piece in pieces:
            if not isinstance(piece, Layout):
                text += piece
                continue
            at = 0
            for mark in self._marks.finditer(piece):
                text += piece[at : mark.start()]
                ids += [*(self.tokenizer.encode(text) if text else ()), self._ids[mark.group()]]
                text, at = "", mark.end()
            text += piece[at:]
        return ids + (self.tokenizer.encode(text) if text else [])


def split_reasoning(text: str, *, opened: bool = False, cut: bool = False) -> tuple[str, str]:
    """Reasoning and the rest of a sampled text. Reasoning that is not closed is all there is.

    ``opened``: the turn began within reasoning, and is no more than that if it was ``cut`` before a closing tag.
    """
    begun = text.lstrip()
    if begun.startswith(THINK):
        text = begun.removeprefix(THINK)
    elif not opened or (END_THINK not in text and not cut):
        return "", text
    reasoning, _, rest = text.partition(END_THINK)
    return reasoning.strip("\n"), rest.lstrip("\n")


def calls_of(message: Message) -> list[Call]:
    """The calls of an assistant message. Raises ``ConfigError`` for what is none."""
    found: list[Call] = []
    for entry in message.get("tool_calls") or ():
        function = _mapping(_mapping(entry).get("function", entry))
        name: Any = function.get("name")
        arguments: Any = function.get("arguments") or {}
        if not isinstance(name, str):
            raise ConfigError(f"a tool call needs a text for its function's name, got {entry!r:.200}")
        found.append(Call(name, arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)))
    return found


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def role_of(message: Message) -> str:
    """The role; that of developers is the system's. Raises ``ConfigError`` if there is none."""
    role = message.get("role")
    if not isinstance(role, str):
        raise ConfigError(f"a message needs text for role and content, got {dict(message)!r:.200}")
    return "system" if role == "developer" else role


def text_of(message: Message, optional: bool = False) -> str:
    """The text; ``optional``: there may be none. Raises ``ConfigError`` for anything else, such as a list of parts."""
    content = message.get("content")
    if content is None and optional:
        return ""
    if not isinstance(content, str):
        raise ConfigError(f"a message needs text for role and content, got {dict(message)!r:.200}")
    return content


def _present(tokenizer: Tokenizer, names: Sequence[str]) -> dict[str, int]:
    """The ids of those control tokens that the tokenizer has."""
    found: dict[str, int] = {}
    for name in names:
        with contextlib.suppress(ConfigError):
            found[name] = tokenizer.special(name)
    return found

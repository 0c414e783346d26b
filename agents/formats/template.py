"""Any model's own chat template as a ``ChatFormat``, extended without rendering again what was sampled.

New messages are rendered behind a stand-in for the sampled turn, and what follows the stand-in is taken. This is done
behind two different conversations: a template whose text for new messages depends on what came before is refused.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from forkgym.agents.base import Call, Turn
from forkgym.agents.formats.calls import read_deepseek, read_llama
from forkgym.agents.formats.chat import THINK, Message, Tools, calls_of, role_of, split_reasoning, text_of
from forkgym.agents.tokenizers import HFTokenizer, Tokenizer, require_pieces
from forkgym.envs.calls import Reading, WrittenCall, read_functions, read_tagged
from forkgym.errors import ConfigError

_BASES: tuple[list[Message], ...] = (
    [{"role": "user", "content": "a"}],
    [{"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}, {"role": "user", "content": "d"}],
)
_PROBE = WrittenCall("probe", '{"key": "value"}')
_CALLING: Message = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "call00000", "function": {"name": _PROBE.name, "arguments": _PROBE.arguments}}],
}
_READERS = (read_tagged, read_functions, read_deepseek, read_llama)
_PRIVATE = range(0xF0000, 0x10FFFE)  # no character of any script; those that no text holds stand for control tokens


class TemplateFormat:
    """A ``ChatFormat`` of the tokenizer's chat template. ``variables`` are given to the template with every render.

    ``takes_tools`` tells whether the template writes the definitions of tools. ``strict`` is as in ``Chat``. Raises
    ``ConfigError`` for a template that cannot be extended exactly, and later for messages or tools that it refuses.
    """

    name = "template"

    def __init__(
        self, tokenizer: Tokenizer, *, variables: Mapping[str, Any] | None = None, strict: bool = False
    ) -> None:
        if not isinstance(tokenizer, HFTokenizer) or not tokenizer.hf.chat_template:
            raise ConfigError("the tokenizer has no chat template; name a chat format, such as chatml")
        require_pieces(tokenizer)
        self.tokenizer = tokenizer
        self.strict = strict
        self._variables = dict(variables or {})
        self._shown: set[tuple[str, bool]] = set()
        self._controls = tokenizer.controls
        names = sorted(self._controls, key=len, reverse=True)
        self._marks = re.compile("|".join(map(re.escape, names)) or r"(?!)")
        self._end = self._find_end()
        eos: Any = tokenizer.hf.eos_token_id
        end = self._controls[self._end]
        self.stop_ids: tuple[int, ...] = (end,) if eos is None or eos == end else (end, int(eos))
        self._objects = self._takes_objects()
        self._lead, self._read = self._find_calls()
        self.takes_tools = self._uses_tools()

    def start(self, messages: Sequence[Message], tools: Tools = ()) -> list[int]:
        """Ids of the template's render of the messages and tools, asking for an assistant turn."""
        given = [self._prepared(message) for message in messages]
        if given and given[0]["role"] == "system":
            self._check_shown("system", opening=True)
        for message in given[1:]:
            self._check_shown(message["role"])
        guard = _Guard(self._marks, [given, tools])
        text = self._render(guard, given, tools)
        if tools and not self.takes_tools:
            raise ConfigError("the template leaves tools out; name a chat format that has them, such as chatml")
        if tools and self._read is None:
            raise ConfigError("the template writes tool calls in a way that no parser here reads; name a chat format")
        return self._encode(guard, text)

    def extend(self, ids: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """``ids``, its turn closed unless the model closed it, the messages and the next header."""
        given = [self._prepared(message) for message in messages]
        for message in given:
            self._check_shown(message["role"])
        guard = _Guard(self._marks, given)
        suffixes = {self._suffix(guard, base, given) for base in _BASES}
        if len(suffixes) != 1:
            raise ConfigError("the template writes new messages otherwise by what came before; name a chat format")
        new = self._encode(guard, suffixes.pop())
        return [*ids, *(new[1:] if ids and ids[-1] == new[0] else new)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of one sampled turn, without its closing token."""
        return self.tokenizer.decode(ids[:-1] if ids and ids[-1] in self.stop_ids else ids)

    def parse(self, ids: Sequence[int]) -> Turn:
        """What one sampled turn says."""
        opened = self._lead.rstrip().endswith(THINK)
        cut = not ids or ids[-1] not in self.stop_ids
        reasoning, text = split_reasoning(self.decode(ids), opened=opened, cut=cut)
        reading = self._read(text, self.strict) if self._read else Reading(text)
        calls = tuple(Call(call.name, call.arguments, call.untyped) for call in reading.calls)
        return Turn(reading.text, reasoning, calls, reading.problem)

    def _render(self, guard: _Guard, messages: Sequence[Message], tools: Tools = (), ask: bool = True) -> str:
        """The template's text for prepared messages, with control tokens in their texts hidden."""
        try:
            text: Any = cast(Any, self.tokenizer.hf).apply_chat_template(
                guard.hide(messages),
                tools=guard.hide(tools) or None,
                tokenize=False,
                add_generation_prompt=ask,
                **self._variables,
            )
        except Exception as error:  # a template may raise anything
            raise ConfigError(f"the chat template refuses these messages: {error}") from error
        return str(text)

    def _prepared(self, message: Message) -> dict[str, Any]:
        """A message as templates take it."""
        given = {**message, "role": role_of(message)}
        if given["role"] != "assistant":
            return {**given, "content": text_of(message)}
        calls = calls_of(message)
        given["content"] = text_of(message, optional=bool(calls or message.get("reasoning_content")))
        if calls:
            ids = [entry.get("id", f"call{i}") for i, entry in enumerate(message["tool_calls"])]
            functions = [{"name": call.name, "arguments": self._arguments(call)} for call in calls]
            pairs = zip(ids, functions, strict=True)
            given["tool_calls"] = [{"id": id, "type": "function", "function": function} for id, function in pairs]
        return given

    def _arguments(self, call: Call) -> Any:
        try:
            return json.loads(call.arguments) if self._objects else call.arguments
        except (ValueError, RecursionError):
            return call.arguments

    def _check_shown(self, role: str, *, opening: bool = False) -> None:
        """Raises ``ConfigError`` if the template leaves out what this role says, at the head or behind a turn."""
        if role == "assistant" or (role, opening) in self._shown:
            return
        guard = _Guard(self._marks, ())
        message = {"role": role, "content": guard.spare, "tool_call_id": "call00000"}
        text = self._render(guard, [message, *_BASES[0]]) if opening else self._suffix(guard, _BASES[0], [message])
        if guard.spare not in text:
            raise ConfigError(f"the template leaves out what the role {role!r} says; name a chat format")
        self._shown.add((role, opening))

    def _suffix(self, guard: _Guard, base: Sequence[Message], messages: Sequence[Message]) -> str:
        """What the template writes from the end of a sampled turn on."""
        turn: dict[str, Any] = {"role": "assistant", "content": guard.stand_in}
        answers = itertools.takewhile(lambda message: message["role"] == "tool", messages)
        answered = [message.get("tool_call_id", f"call{i}") for i, message in enumerate(answers)]
        function: Message = {"name": "f", "arguments": dict[str, Any]() if self._objects else "{}"}
        calls = [{"id": id, "type": "function", "function": function} for id in answered]
        problem: ConfigError | None = None
        for asked in [
            turn,
            *([{**turn, "tool_calls": calls}] if calls else []),
        ]:  # some templates allow answers only after calls
            try:
                return self._after(self._render(guard, [*base, asked, *messages]), guard.stand_in)
            except ConfigError as error:
                problem = problem or error
        assert problem is not None
        raise problem

    def _after(self, text: str, stand_in: str) -> str:
        before, _, after = text.partition(stand_in)
        end = after.find(self._end)
        if not before or end < 0 or stand_in in after:
            raise ConfigError("the template does not write an assistant turn once and as it is; name a chat format")
        return after[end:]

    def _encode(self, guard: _Guard, text: str) -> list[int]:
        """Ids of a render: the template's own control tokens are control tokens, hidden ones are text again."""
        ids: list[int] = []
        at, stripped = 0, False
        for mark in [*self._marks.finditer(text), None]:
            name = "" if mark is None else mark.group()
            between = guard.show(text[at : len(text) if mark is None else mark.start()])
            between = between.lstrip() if stripped else between
            between = between.rstrip() if name in self.tokenizer.strips_left else between
            ids += [*(self.tokenizer.encode(between) if between else ()), *([self._controls[name]] if name else ())]
            at, stripped = (0 if mark is None else mark.end()), name in self.tokenizer.strips_right
        return ids

    def _find_end(self) -> str:
        """The control token that closes an assistant turn."""
        guard = _Guard(self._marks, ())
        turn = {"role": "assistant", "content": guard.stand_in}
        text = self._render(guard, [*_BASES[0], turn, *_BASES[0]])
        found = self._marks.match(text, text.find(guard.stand_in) + 1)
        if guard.stand_in not in text or found is None:
            raise ConfigError("the chat template does not close an assistant turn by a control token right behind it")
        return found.group()

    def _takes_objects(self) -> bool:
        """True if the template wants the arguments of calls as objects, False if as JSON text."""
        self._objects = True
        try:
            text = self._render(_Guard(self._marks, ()), [*_BASES[0], self._prepared(_CALLING)], ask=False)
        except ConfigError:
            return False
        return str(json.loads(_PROBE.arguments)) not in text  # Python's own spelling of it

    def _uses_tools(self) -> bool:
        """True if the template writes what tools there are."""
        guard = _Guard(self._marks, ())
        function: Message = {"name": guard.stand_in, "description": "", "parameters": {"type": "object"}}
        try:
            text = self._render(guard, _BASES[0], [{"type": "function", "function": function}])
        except ConfigError:
            return False
        return guard.stand_in in text

    def _find_calls(self) -> tuple[str, Callable[[str, bool], Reading] | None]:
        """What the header of a sampled turn says, and the parser that reads a call as the template writes it."""
        guard = _Guard(self._marks, ())
        user = {"role": "user", "content": guard.stand_in}
        lead = self._render(guard, [user]).partition(guard.stand_in)[2]
        try:
            written = self._render(guard, [user, self._prepared(_CALLING)], ask=False).partition(guard.stand_in)[2]
        except ConfigError:
            return lead, None
        header = lead if written.startswith(lead) else lead.rstrip().removesuffix(THINK)
        said = split_reasoning(written.removeprefix(header).rpartition(self._end)[0], opened=True)[1]
        fitting = [read for read in _READERS if _reads_the_probe(read(said, True))]
        return lead, fitting[0] if fitting else None


def _reads_the_probe(reading: Reading) -> bool:
    return reading.text == "" and [replace(call, untyped=False) for call in reading.calls] == [_PROBE]


class _Guard:
    """Characters that stand for control tokens while a template works on texts that spell them."""

    def __init__(self, marks: re.Pattern[str], texts: Any) -> None:
        present = {char for text in _texts(texts) for char in text}
        free = (chr(code) for code in _PRIVATE if chr(code) not in present)
        self.stand_in, self.spare = next(free), next(free)
        spelled = dict.fromkeys(name for text in _texts(texts) for name in marks.findall(text))
        self._hidden = {name: next(free) for name in spelled}
        self._shown = {ord(char): name for name, char in self._hidden.items()}
        self._marks = marks

    def hide(self, value: Any) -> Any:
        """``value`` with every control token in its texts hidden."""
        if isinstance(value, str):
            return self._marks.sub(lambda mark: self._hidden[mark.group()], value)
        if isinstance(value, Mapping):
            return {self.hide(key): self.hide(inner) for key, inner in cast("Mapping[Any, Any]", value).items()}
        if isinstance(value, list | tuple):
            return [self.hide(inner) for inner in cast("Sequence[Any]", value)]
        return value

    def show(self, text: str) -> str:
        """The text with what was hidden spelled out again."""
        return text.translate(self._shown)


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in cast("Mapping[Any, Any]", value).items():
            yield from _texts(key)
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("Sequence[Any]", value):
            yield from _texts(inner)

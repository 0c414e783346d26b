"""Chooses the chat format of a model: the family that writes what the model's own chat template writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from forkgym.agents.formats import families
from forkgym.agents.formats.chat import Chat, Message, Tools
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.formats.template import TemplateFormat
from forkgym.agents.tokenizers import Tokenizer
from forkgym.errors import ConfigError

_FAMILIES: tuple[Callable[[Tokenizer], Chat], ...] = (
    families.deepseek,
    partial(families.deepseek, thinking=True),
    families.llama3,
    partial(families.llama3, date=None),
    families.gemma,
    families.qwen25,
    families.qwen3,
    ChatML,
)
_TALK: list[Message] = [
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"},
    {"role": "user", "content": "c"},
]
_CALL = {"id": "call00000", "type": "function", "function": {"name": "f", "arguments": '{"x": "y"}'}}
_WORK: list[Message] = [
    _TALK[0],
    {"role": "assistant", "content": "", "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "call00000", "content": "d"},
]
_SYSTEM: Message = {"role": "system", "content": "s"}
_TOOLS: Tools = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}]


def choose(tokenizer: Tokenizer) -> Chat | TemplateFormat:
    """The family whose text for some short conversations is the template's; if none is, the template itself.

    A template that knows no system message or no tools leaves these to the family. Without a template it is the one
    family that has all its control tokens in the tokenizer. The ``name`` of the result says what was chosen. Raises
    ``ConfigError`` if nothing fits.
    """
    possible = [chat for make in _FAMILIES if (chat := _made(make, tokenizer)) is not None]
    if getattr(getattr(tokenizer, "hf", None), "chat_template", None):
        template = TemplateFormat(tokenizer)
        if any(isinstance(chat, ChatML) for chat in possible):
            possible.append(ChatML(tokenizer, _default_system(template)))
        return next((chat for chat in possible if _agree(chat, template)), template)
    names = {chat.name for chat in possible} - {"qwen2.5", "qwen3"}  # they are told from ChatML by their template alone
    if len(names) != 1:
        found = f"fit {', '.join(sorted(names))}" if names else "fit none that is known"
        raise ConfigError(f"the tokenizer has no chat template, and its control tokens {found}: name a chat format")
    return next(chat for chat in possible if chat.name in names)


def _default_system(template: TemplateFormat) -> str | None:
    """The system message that a ChatML template writes where a conversation brings none."""
    text = template.tokenizer.decode(template.start(_TALK))
    header, end = "<|im_start|>system\n", "<|im_end|>"
    return text.removeprefix(header).partition(end)[0] if text.startswith(header) else None


def _made(make: Callable[[Tokenizer], Chat], tokenizer: Tokenizer) -> Chat | None:
    try:
        return make(tokenizer)
    except ConfigError:
        return None


def _agree(chat: Chat, template: TemplateFormat) -> bool:
    """True if both write the same ids for every conversation that the template takes, and it takes some."""
    talks = [_same(chat, template, messages) for messages in ([_SYSTEM, *_TALK], _TALK)]
    works = [_same(chat, template, messages, _TOOLS) for messages in ([_SYSTEM, *_WORK], _WORK)]
    asked = [talks, works] if template.takes_tools else [talks]
    return all(True in found and False not in found for found in asked)


def _same(chat: Chat, template: TemplateFormat, messages: Sequence[Message], tools: Tools = ()) -> bool | None:
    """``None`` if the template takes no such conversation."""
    try:
        wanted = template.start(messages, tools)
    except ConfigError:
        return None
    return chat.start(messages, tools) == wanted

"""The model families whose chat format is known, as data over ``Chat``. ``docs/formats.md`` has them as a table."""

from __future__ import annotations

from dataclasses import replace

from forkgym.agents.formats.calls import (
    DEEPSEEK_TAGS,
    HERMES_TAGS,
    deepseek_section,
    hermes_section,
    llama_section,
    read_deepseek,
    read_llama,
    write_deepseek,
    write_hermes,
    write_llama,
)
from forkgym.agents.formats.chat import END_THINK, THINK, Chat, Family, Tools
from forkgym.agents.formats.chatml import CHATML
from forkgym.agents.tokenizers import Tokenizer
from forkgym.envs.calls import read_tagged

QWEN = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
LLAMA_DATE = "26 Jul 2024"
_NO_THOUGHT = f"{THINK}\n\n{END_THINK}\n\n"
_QWEN = replace(CHATML, name="qwen2.5", stops=("<|endoftext|>",))


def qwen25(tokenizer: Tokenizer, *, default_system: str | None = QWEN, strict: bool = False) -> Chat:
    """Qwen 2 and 2.5: ChatML with a system message of its own where a conversation brings none."""
    return Chat(_QWEN, tokenizer, default_system=default_system, strict=strict)


def qwen3(tokenizer: Tokenizer, *, thinking: bool = True, strict: bool = False) -> Chat:
    """Qwen 3. Reasoning is kept where it stands; without ``thinking`` each turn begins with an empty thought."""
    lead = "" if thinking else _NO_THOUGHT
    family = replace(_QWEN, name="qwen3", lead=lead, specials=(*_QWEN.specials, THINK, END_THINK))
    return Chat(family, tokenizer, strict=strict)


def llama3(tokenizer: Tokenizer, *, date: str | None = LLAMA_DATE, strict: bool = False) -> Chat:
    """Llama 3, 3.1 to 3.3. ``date`` stands in the system message; ``None`` leaves that part out, as Llama 3.0 does."""
    dated = "" if date is None else f"Cutting Knowledge Date: December 2023\nToday Date: {date}\n\n"

    def opening(system: str | None, tools: Tools) -> tuple[list[str], list[str]]:
        said = [*(["Environment: ipython\n"] if tools else []), dated, (system or "").strip()]
        return (said if any(said) or system is not None else []), (llama_section(tools) if tools else [])

    header = "<|start_header_id|>{}<|end_header_id|>\n\n"
    family = Family(
        name="llama3",
        specials=("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        begin="<|begin_of_text|>",
        turns={
            "assistant": (header.format("assistant"), "<|eot_id|>"),
            "tool": (header.format("ipython"), "<|eot_id|>"),
            "*": (header.format("{role}"), "<|eot_id|>"),
        },
        opening=opening,
        answer=("", ""),
        quote=True,
        strip=True,
        gap="\n",
        write=write_llama,
        read=read_llama,
        ends=("<|eom_id|>",),
        stops=("<|end_of_text|>",),
    )
    return Chat(family, tokenizer, strict=strict)


def gemma(tokenizer: Tokenizer, *, strict: bool = False) -> Chat:
    """Gemma 2 and 3. There is no system turn: system message and tools open the first user turn.

    Gemma has no format of its own for tools; they are written as Hermes models write them.
    """

    def opening(system: str | None, tools: Tools) -> tuple[list[str], list[str]]:
        prefix = [] if system is None else [system, "\n\n"]
        return [], [*prefix, *([*hermes_section(tools), "\n\n"] if tools else [])]

    user, end = "<start_of_turn>user\n", "<end_of_turn>\n"
    family = Family(
        name="gemma",
        specials=("<bos>", "<start_of_turn>", "<end_of_turn>"),
        begin="<bos>",
        turns={
            "system": (user, end),
            "user": (user, end),
            "tool": (user, end),
            "assistant": ("<start_of_turn>model\n", end),
        },
        opening=opening,
        answer=("<tool_response>\n", "\n</tool_response>"),
        group="\n",
        gap="\n",
        strip=True,
        write=write_hermes,
        read=read_tagged,
        tags=HERMES_TAGS,
        stops=("<eos>",),
    )
    return Chat(family, tokenizer, strict=strict)


def deepseek(tokenizer: Tokenizer, *, thinking: bool = False, strict: bool = False) -> Chat:
    """DeepSeek V3 and R1. ``thinking``: each turn begins within reasoning, as R1 does.

    After the answers of tools the model goes on without a header, as its template has it.
    """

    def opening(system: str | None, tools: Tools) -> tuple[list[str], list[str]]:
        said = [] if system is None else [system]
        return [*said, *([*(["\n\n"] if said else []), *deepseek_section(tools)] if tools else [])], []

    family = Family(
        name="deepseek",
        specials=("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", *DEEPSEEK_TAGS),
        begin="<｜begin▁of▁sentence｜>",
        turns={
            "system": ("", ""),
            "user": ("<｜User｜>", ""),
            "assistant": ("<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
            "tool": ("<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"),
        },
        opening=opening,
        answer=("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
        group="",
        direct=True,
        lead=f"{THINK}\n" if thinking else "",
        write=write_deepseek,
        read=read_deepseek,
        tags=(THINK, END_THINK),
    )
    return Chat(family, tokenizer, strict=strict)

"""ChatML, as SmolLM2 and many other models were tuned on, with tool calls as Hermes and Qwen models write them.

    <|im_start|>system\\n...<|im_end|>\\n<|im_start|>user\\n...<|im_end|>\\n<|im_start|>assistant\\n

Tools are defined in the system message, calls stand in ``<tool_call>`` tags, and answers in ``<tool_response>`` tags
within a user turn.
"""

from __future__ import annotations

from forkgym.agents.formats.calls import HERMES_TAGS, hermes_section, write_hermes
from forkgym.agents.formats.chat import Chat, Family, Tools
from forkgym.agents.tokenizers import Tokenizer
from forkgym.envs.calls import read_tagged

_TURN = ("<|im_start|>{role}\n", "<|im_end|>\n")


def hermes_opening(system: str | None, tools: Tools) -> tuple[list[str], list[str]]:
    """The system message and, below it, the tools."""
    said = [] if system is None else [system]
    if tools:
        said += [*(["\n\n"] if said else []), *hermes_section(tools)]
    return said, []


CHATML = Family(
    name="chatml",
    specials=("<|im_start|>", "<|im_end|>"),
    turns={
        "assistant": ("<|im_start|>assistant\n", "<|im_end|>\n"),
        "tool": ("<|im_start|>user\n", "<|im_end|>\n"),
        "*": _TURN,
    },
    opening=hermes_opening,
    answer=("<tool_response>\n", "\n</tool_response>"),
    group="\n",
    gap="\n",
    write=write_hermes,
    read=read_tagged,
    tags=HERMES_TAGS,
)


class ChatML(Chat):
    """ChatML. ``default_system`` opens conversations that bring no system message (``None``: nothing)."""

    def __init__(self, tokenizer: Tokenizer, default_system: str | None = None, strict: bool = False) -> None:
        super().__init__(CHATML, tokenizer, default_system=default_system, strict=strict)

"""OpenAI's chat completions as a client sees them: a request's body, and the turn in an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from forkgym.agents.base import Call, ChatReply, SamplingParams, Turn
from forkgym.agents.errors import PolicyError
from forkgym.errors import ConfigError


class _Function(BaseModel):
    name: str
    arguments: str


class _ToolCall(BaseModel):
    id: str
    function: _Function


class _Message(BaseModel):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: Literal["stop", "length", "tool_calls", "function_call", "content_filter"]


class _Usage(BaseModel):
    completion_tokens: int = 0


class _Answer(BaseModel):
    choices: Annotated[list[_Choice], Field(min_length=1, max_length=1)]
    usage: _Usage | None = None


def chat_body(
    model: str,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    params: SamplingParams,
    limit_name: str = "max_tokens",
) -> dict[str, Any]:
    """The request. Options at their defaults are left out, since many servers refuse those they do not know.

    Raises ``ConfigError`` for stop ids: no chat server takes them.
    """
    if params.stop_ids:
        raise ConfigError("a chat endpoint takes stop texts, no stop ids")
    options = {
        "tools": list(tools) or None,
        "top_p": params.top_p if params.top_p < 1 else None,
        "top_k": params.top_k or None,
        "seed": params.seed,
        "stop": list(params.stop) or None,
    }
    return {
        "model": model,
        "messages": list(messages),
        limit_name: params.max_tokens,
        "temperature": params.temperature,
        **{name: value for name, value in options.items() if value is not None},
    }


def read_reply(answer: Any) -> ChatReply:
    """The turn in an answer. Raises ``PolicyError`` for an answer that is none."""
    try:
        parsed = _Answer.model_validate(answer)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise PolicyError(f"the server's answer is no chat completion: {where}: {first['msg']}") from error
    [choice] = parsed.choices
    message, listed = choice.message, choice.message.tool_calls or []
    if len({call.id for call in listed}) < len(listed):
        raise PolicyError("the server gave two tool calls the same id")
    # Reasoning does not go back: some servers refuse it, the others leave it out.
    back: dict[str, Any] = {"role": "assistant", "content": message.content or ""}
    if listed:
        back["tool_calls"] = [{**call.model_dump(), "type": "function"} for call in listed]
    return ChatReply(
        Turn(
            message.content or "",
            message.reasoning_content or message.reasoning or "",
            tuple(Call(call.function.name, call.function.arguments) for call in listed),
        ),
        back,
        "length" if choice.finish_reason == "length" else "stop",
        max(parsed.usage.completion_tokens if parsed.usage else 0, 0),
    )

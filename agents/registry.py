"""Policies, chat formats and agents by name: a short name below, a dotted path ``package.module:Name``, or a plugin."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from forkgym.agents.base import Agent, ChatFormat, Policy
from forkgym.agents.options import typed
from forkgym.agents.tokenizers import Tokenizer
from forkgym.errors import ConfigError
from forkgym.registry import resolve

POLICIES = {
    "endpoint": "forkgym.agents.policies.endpoint:Endpoint",
    "hf": "forkgym.agents.policies.hf:HFPolicy",
    "scripted": "forkgym.agents.policies.scripted:ScriptedPolicy",
    "vllm": "forkgym.agents.policies.vllm:VLLMPolicy",
}
FORMATS = {
    "auto": "forkgym.agents.formats.auto:choose",
    "chatml": "forkgym.agents.formats.chatml:ChatML",
    "deepseek": "forkgym.agents.formats.families:deepseek",
    "gemma": "forkgym.agents.formats.families:gemma",
    "llama3": "forkgym.agents.formats.families:llama3",
    "qwen2.5": "forkgym.agents.formats.families:qwen25",
    "qwen3": "forkgym.agents.formats.families:qwen3",
    "template": "forkgym.agents.formats.template:TemplateFormat",
}
AGENTS = {
    "bash": "forkgym.agents.loops.bash:BashAgent",
    "chat": "forkgym.agents.loops.chat:ChatAgent",
    "demonstration": "forkgym.agents.loops.oracle:DemonstrationAgent",
    "harness": "forkgym.agents.harnesses.agent:HarnessAgent",
    "host-harness": "forkgym.agents.harnesses.host:HostAgent",
    "mix": "forkgym.agents.loops.mix:make_mix",
    "nop": "forkgym.agents.loops.oracle:NopAgent",
    "oracle": "forkgym.agents.loops.oracle:OracleAgent",
    "random": "forkgym.agents.loops.oracle:RandomAgent",
    "tools": "forkgym.agents.loops.tools:ToolsAgent",
}
EXTRAS = {"hf": "train", "vllm": "vllm"}


def make_policy(spec: str | Mapping[str, Any]) -> Policy:
    """The policy of a name, or of ``{"name": ..., option: value, ...}``. Raises ``ConfigError``."""
    name, options = _split("policy", spec)
    return _build("policy", name, POLICIES, options)


def make_format(spec: str | Mapping[str, Any], tokenizer: Tokenizer) -> ChatFormat:
    """The chat format of a name or a mapping, over ``tokenizer``. Raises ``ConfigError``."""
    name, options = _split("chat format", spec)
    return _build("chat format", name, FORMATS, {"tokenizer": tokenizer, **options})


def make_agent(spec: str | Mapping[str, Any], **parts: Any) -> Agent:
    """The agent of a name or a mapping; ``parts`` are live objects it needs, such as ``format``.

    Raises ``ConfigError`` also for an option of another type than the agent takes.
    """
    name, options = _split("agent", spec)
    if options:
        options = typed(name, resolve("agent", name, AGENTS, EXTRAS), options)
    return _build("agent", name, AGENTS, {**parts, **options})


def _split(kind: str, spec: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(spec, str):
        return spec, {}
    options = dict(spec)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(f"{kind} {dict(spec)!r} needs a text under 'name'")
    return name, options


def _build(kind: str, name: str, table: Mapping[str, str], options: dict[str, Any]) -> Any:
    make = resolve(kind, name, table, EXTRAS)
    try:
        inspect.signature(make).bind(**options)
    except TypeError as error:
        raise ConfigError(f"{kind} {name!r}: {error}") from error
    return make(**options)

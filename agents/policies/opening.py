"""A policy from one line of text, as every command takes it: ``ENGINE:WHERE[,option=value...]``.

    hf:/models/mine,context=4096        a model's folder or name; ``hf:`` may be left out
    scripted:turns.yaml                 a list of texts, one a turn
    endpoint:http://host:8000/v1#NAME   a server that speaks OpenAI's HTTP
    vllm:/models/mine                   vLLM in this process

An engine is a function that takes ``WHERE`` and the options as keywords, and returns ``Opened``; plugins add more.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import ValidationError, validate_call

from forkgym.agents.base import Policy
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.agents.tokenizers import Tokenizer
from forkgym.errors import ConfigError
from forkgym.registry import resolve

ENGINES = {
    "endpoint": "forkgym.agents.policies.remote:open_endpoint",
    "hf": "forkgym.agents.models:open_hf",
    "scripted": "forkgym.agents.policies.opening:open_scripted",
    "vllm": "forkgym.agents.models:open_vllm",
}
EXTRAS = {"hf": "train", "vllm": "vllm"}


@dataclass(frozen=True)
class Opened:
    """A policy and, found when it is first asked for, the tokenizer of its model. A context manager that closes it."""

    policy: Policy
    find_tokenizer: Callable[[], Tokenizer]

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """Raises ``ConfigError`` if the engine cannot tell which it is."""
        return self.find_tokenizer()

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.policy.close()


def open_policy(spec: str, *, slots: int | None = None) -> Opened:
    """The policy of one line of text; see the module. ``slots`` is how many calls will come at once, if known.

    Raises ``ConfigError`` for what is wrong with the line, ``MissingExtraError`` for an absent package.
    """
    engine, where, options = parse_spec(spec)
    make = resolve("policy engine", engine, ENGINES, EXTRAS)
    if slots is not None and "slots" in inspect.signature(make).parameters:
        options = {"slots": slots, **options}
    try:
        return validate_call(config={"arbitrary_types_allowed": True})(make)(where, **options)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise ConfigError(f"policy {spec!r}: {wrong}") from error


def parse_spec(spec: str) -> tuple[str, str, dict[str, Any]]:
    """Engine, place and options of a line; without an engine it is a model's name or folder."""
    place, *rest = spec.split(",")
    engine, colon, where = place.partition(":")
    if not colon or Path(place).exists():
        engine, where = "hf", place
    if not where:
        raise ConfigError(f"policy {spec!r} names no place; write ENGINE:WHERE, such as hf:smollm2-135m")
    options = dict[str, Any]()
    for part in rest:
        name, sign, value = part.partition("=")
        if not sign or not name.strip():
            raise ConfigError(f"policy {spec!r}: write option=value, not {part!r}")
        options[name.strip()] = value.strip()
    return engine, where, options


def open_scripted(where: str, *, window: int | None = None) -> Opened:
    """A policy that says the texts of a file, a list in YAML or JSON, one a turn. ``window``: its context in tokens."""
    try:
        text = Path(where).read_text(encoding="utf-8")
        turns: Any = json.loads(text) if where.endswith(".json") else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read the script {where}: {error}") from error
    if not isinstance(turns, list) or not all(isinstance(turn, str) for turn in cast("list[Any]", turns)):
        raise ConfigError(f"the script {where} must be a list of texts, one a turn")
    policy = ScriptedPolicy(cast("list[str]", turns), window=window)
    return Opened(policy, lambda: policy.tokenizer)

"""Options of agents as recipes and command lines write them: checked against what the agent's constructor takes."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import yaml
from pydantic import PydanticUserError, TypeAdapter, ValidationError

from forkgym.errors import ConfigError
from forkgym.registry import unknown

# What is no option: the agent's own name, and the live objects that it is given.
RESERVED = frozenset({"name", "format", "harness", "agent", "tokenizer", "texts", "self"})


def typed(name: str, make: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` as the types that the class ``make`` says they have; a text may stand for a number.

    A function, such as that of ``mix``, checks what it is given itself. Raises ``ConfigError`` for a value that is none
    of its type, and for an option that the class does not know.
    """
    if not isinstance(make, type):
        return dict(options)
    hints = _hints(make)
    for option in options:
        if option not in hints:
            raise ConfigError(f"agent {name!r}: {unknown('option', option, sorted(set(hints) - RESERVED))}")
    return {option: _value(name, option, value, hints[option]) for option, value in options.items()}


def from_words(words: Iterable[str], hints: Callable[..., Any]) -> dict[str, Any]:
    """``key=value`` each: a value is taken as text where the option takes texts, else as YAML."""
    found: dict[str, Any] = {}
    kinds = _hints(hints)
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key:
            raise ConfigError(f"--agent-option {word!r}: write key=value, such as compact_at=2000")
        if key in RESERVED:
            raise ConfigError(f"--agent-option {word!r}: {key} is no option; other flags say who plays")
        if key in found:
            raise ConfigError(f"--agent-option {key} is given twice")
        found[key] = value if _takes_text(kinds.get(key, Any)) and value != "null" else _read(word, value)
    return found


def _hints(make: Callable[..., Any]) -> dict[str, Any]:
    """The types of what ``make`` takes, also what a class hands on to its bases; without those nobody can name."""
    makers = [base.__init__ for base in make.__mro__ if base is not object] if isinstance(make, type) else [make]
    found: dict[str, Any] = {}
    for maker in makers:
        try:
            hints = typing.get_type_hints(maker, include_extras=True)  # with their ranges
        except NameError:
            hints = dict[str, Any]()
        for name, parameter in inspect.signature(maker).parameters.items():
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and name != "self":
                found.setdefault(name, hints.get(name, Any))
        if not any(p.kind is p.VAR_KEYWORD for p in inspect.signature(maker).parameters.values()):
            break
    return found


def _value(name: str, option: str, value: Any, hint: Any) -> Any:
    try:
        return TypeAdapter(
            hint, config=None if _configured(hint) else {"arbitrary_types_allowed": True}
        ).validate_python(value)
    except ValidationError as error:
        raise ConfigError(f"agent {name!r}: {option}: {error.errors()[0]['msg']}, not {value!r}") from error
    except (PydanticUserError, TypeError):  # a type that cannot be checked
        return value


def _configured(hint: Any) -> bool:
    return hasattr(hint, "__pydantic_config__") or hasattr(hint, "__dataclass_fields__")


def _takes_text(hint: Any) -> bool:
    either = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return hint is str or (either and str in typing.get_args(hint))


def _read(word: str, value: str) -> Any:
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"--agent-option {word!r}: the value is no YAML: {error}") from error

"""The part of JSON Schema that tool arguments use: check a schema, check a value against it, draw a valid value.

Supported keywords are ``type`` (one name), ``enum``, ``properties``, ``required``, ``additionalProperties: false``,
``items``, ``minimum``, ``maximum``, ``minLength``, ``maxLength``, ``minItems``, ``maxItems``, and the annotations
``title``, ``description``, ``default``, ``examples``. Any other keyword is refused when the schema is loaded, so that
none is silently ignored. ``examples`` also steer sampling: a random agent draws commands that mean something.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from forkgym.errors import ConfigError

_TYPES = ("object", "array", "string", "integer", "number", "boolean")
_ANNOTATIONS = {"title", "description", "default", "examples"}
_KEYWORDS = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "minItems", "maxItems"},
    "string": {"minLength", "maxLength"},
    "integer": {"minimum", "maximum"},
    "number": {"minimum", "maximum"},
    "boolean": set[str](),
}
_SAMPLE_CHARACTERS = "abcdefghij klmnop_qrst.uvwxyz/0123456789-\n"
_SAMPLE_LENGTH = 24
_MOST = 1 << 63  # no count, line or time is larger, and larger ones break what they are handed to

Schema = Mapping[str, Any]


def check_schema(schema: Schema, where: str) -> None:
    """Raise ``ConfigError`` if ``schema`` uses anything this module does not honour."""
    kind = schema.get("type")
    if kind not in _TYPES:
        raise ConfigError(f"{where}: type {kind!r} is not supported; use one of {', '.join(_TYPES)}")
    extra = set(schema) - {"type", "enum"} - _ANNOTATIONS - _KEYWORDS[kind]
    if extra:
        raise ConfigError(f"{where}: schema keywords {sorted(extra)} are not supported for type {kind!r}")
    if schema.get("additionalProperties", False) is not False:
        raise ConfigError(f"{where}: additionalProperties must be false")
    properties = cast("Mapping[str, Schema]", schema.get("properties", {}))
    missing = set(schema.get("required", ())) - set(properties)
    if missing:
        raise ConfigError(f"{where}: required names {sorted(missing)} are not in properties")
    for name, part in properties.items():
        check_schema(part, f"{where}.{name}")
    if kind == "array":
        check_schema(schema.get("items", {}), f"{where}[]")


def problem(schema: Schema, value: Any, where: str) -> str | None:
    """What is wrong with ``value``, in one sentence that names the place, or ``None`` if it is valid."""
    kind = schema["type"]
    if not _has_type(kind, value):
        return f"{where} must be {_article(kind)}, got {_describe(value)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} must be one of {', '.join(map(repr, schema['enum']))}, got {value!r}"
    if kind == "object":
        return _object_problem(schema, value, where)
    if kind == "array":
        return _size_problem(schema, len(value), "Items", where) or next(
            (p for i, part in enumerate(value) if (p := problem(schema["items"], part, f"{where}[{i}]"))), None
        )
    if kind == "string":
        if not is_text(value):
            return f"{where} holds a lone surrogate, which is not valid text"
        return _size_problem(schema, len(value), "Length", where)
    if kind in ("integer", "number"):
        if "minimum" in schema and value < schema["minimum"]:
            return f"{where} must be at least {schema['minimum']}, got {value}"
        if "maximum" in schema and value > schema["maximum"]:
            return f"{where} must be at most {schema['maximum']}, got {value}"
    return None


def sample(schema: Schema, rng: np.random.Generator) -> Any:
    """A random value that is valid under ``schema``, drawn only from ``rng``."""
    kind = schema["type"]
    choices = list(schema.get("enum") or schema.get("examples") or ())
    if choices:
        return choices[_draw(rng, 0, len(choices) - 1)]
    if kind == "object":
        required = set(schema.get("required", ()))
        names = [n for n in schema.get("properties", {}) if n in required or rng.random() < 0.5]
        return {name: sample(schema["properties"][name], rng) for name in names}
    if kind == "array":
        fewest = schema.get("minItems", 0)
        return [sample(schema["items"], rng) for _ in range(_draw(rng, fewest, schema.get("maxItems", fewest + 3)))]
    if kind == "string":
        shortest = schema.get("minLength", 0)
        longest = min(schema.get("maxLength", _SAMPLE_LENGTH), max(shortest, _SAMPLE_LENGTH))
        return random_text(rng, shortest, longest)
    if kind == "boolean":
        return bool(_draw(rng, 0, 1))
    low: float = schema.get("minimum", min(0, schema.get("maximum", 0)))
    high: float = schema.get("maximum", low + 100)
    return _draw(rng, math.ceil(low), math.floor(high)) if kind == "integer" else float(rng.uniform(low, high))


def random_text(rng: np.random.Generator, shortest: int, longest: int) -> str:
    """Text of a random length in [shortest, longest], of a few plain characters."""
    size = _draw(rng, shortest, longest)
    return "".join(_SAMPLE_CHARACTERS[int(i)] for i in rng.integers(len(_SAMPLE_CHARACTERS), size=size))


def _draw(rng: np.random.Generator, low: int, high: int) -> int:
    """A whole number in [low, high]."""
    return int(rng.integers(low, high + 1))


def is_text(value: Any) -> bool:
    """True for a ``str`` that UTF-8 can carry: any code points but lone surrogates."""
    if not isinstance(value, str):
        return False
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _has_type(kind: str, value: Any) -> bool:
    if kind == "object":
        return isinstance(value, dict)
    if kind == "array":
        return isinstance(value, list)
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if isinstance(value, int):  # of any size: a float could not hold it
        return abs(value) < _MOST
    return kind == "number" and math.isfinite(value)


def _object_problem(schema: Schema, value: Mapping[Any, Any], where: str) -> str | None:
    properties = cast("Mapping[str, Schema]", schema.get("properties", {}))
    for name in schema.get("required", ()):
        if name not in value:
            return f"{where} misses the argument {name!r}"
    for name, part in value.items():
        if name not in properties:
            return f"{where} has an unknown argument {name!r}; known: {', '.join(properties) or 'none'}"
        if found := problem(properties[name], part, f"{where}.{name}"):
            return found
    return None


def _size_problem(schema: Schema, size: int, noun: str, where: str) -> str | None:
    low, high = schema.get(f"min{noun}", 0), schema.get(f"max{noun}", math.inf)
    if low <= size <= high:
        return None
    unit = "characters" if noun == "Length" else "items"
    return f"{where} must have {low} to {high} {unit}, got {size}"


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aoi" else f"a {kind}"


def _describe(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _MOST:
        return "one beyond 2**63"
    return names.get(
        cast("type[Any]", type(value)), "a number" if isinstance(value, int | float) else type(value).__name__
    )

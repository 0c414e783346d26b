"""Tool calls read out of text: JSON, kept exactly as it was written, or elements of parameters without types."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_SPACE = re.compile(r"[ \t\r\n]*")
_FENCE = re.compile(r"[ \t\r\n]*(?:```(?:json)?[ \t]*\r?\n?)?")
_PARAMETER = re.compile(r"\s*<parameter=([^<>\s]+)>(.*?)</parameter>", re.DOTALL)
_WRAPPED = re.compile(r"<tool_call>\s*<function=([^<>\s]+)>(.*?)</function>\s*</tool_call>", re.DOTALL)
_ELEMENT = re.compile(r"(?:<tool_call>\s*)?<function=([^<>\s]+)>(.*?)</function>(?:\s*</tool_call>)?", re.DOTALL)
_NOT_A_CALL = "is not an object with 'name' and 'arguments'"


@dataclass(frozen=True)
class WrittenCall:
    """A call as it stands in a text; ``arguments`` is the JSON text of an object, of texts alone if ``untyped``."""

    name: str
    arguments: str
    untyped: bool = False


@dataclass(frozen=True)
class Reading:
    """``text`` is what stands outside of ``calls``; a call that can't be read stays there, ``problem`` says why."""

    text: str
    calls: tuple[WrittenCall, ...] = ()
    problem: str = ""


def read_tagged(text: str, strict: bool = False) -> Reading:
    """The JSON objects between ``<tool_call>`` tags, as Hermes and Qwen write them. Never raises.

    Tags within the JSON are text of it. Not ``strict``: a call that ends without its closing tag, JSON in a fence, and
    what ``read_call`` forgives are read too.
    """
    outside: list[str] = []
    calls: list[WrittenCall] = []
    problem, at = "", 0
    while (begin := text.find(OPEN, at)) >= 0:
        body = begin + len(OPEN)
        try:
            call, end = read_call(text, body if strict else skip(text, body, _FENCE), strict=strict)
            end = _closed(text, end if strict else skip(text, end, _FENCE), strict)
        except ValueError as error:
            problem = problem or str(error)
            end = _resume(text, body)
            outside.append(text[at:end])
        else:
            outside.append(text[at:begin])
            calls.append(call)
        at = end
    whole = "".join([*outside, text[at:]])
    return Reading(whole.strip("\n") if calls else whole, tuple(calls), problem)


def read_functions(text: str, strict: bool = False) -> Reading:
    """The ``<function=NAME>`` elements in ``<tool_call>`` tags, as Qwen 3.5 and Nemotron 3 write them. Never raises.

    Not ``strict``: the tags may be missing. Values are texts.
    """
    outside: list[str] = []
    calls: list[WrittenCall] = []
    problem, at = "", 0
    for found in (_WRAPPED if strict else _ELEMENT).finditer(text):
        try:
            values = json.dumps(read_parameters(found[2]), ensure_ascii=False)
            calls.append(WrittenCall(checked_name(found[1]), values, untyped=True))
        except ValueError as error:
            problem = problem or str(error)
            outside.append(text[at : found.end()])
        else:
            outside.append(text[at : found.start()])
        at = found.end()
    outside.append(text[at:])
    whole = "".join(outside)
    if not problem and ("<function=" in whole or OPEN in whole):
        problem = "is not closed" if "<function=" in whole else "holds no <function=NAME> element"
    return Reading(whole.strip("\n") if calls else whole, tuple(calls), problem)


def read_parameters(body: str) -> dict[str, str]:
    """The ``<parameter=NAME>`` elements; a value loses one line break at each end. Raises ``ValueError``."""
    found: list[tuple[str, str]] = _PARAMETER.findall(body)
    if _PARAMETER.sub("", body).strip():
        raise ValueError("has something else between its parameters")
    if len({name for name, _ in found}) < len(found):
        raise ValueError("has a parameter that is given twice")
    return {name: value.removeprefix("\n").removesuffix("\n") for name, value in found}


def read_call(
    text: str, at: int = 0, *, keys: Sequence[str] = ("arguments", "parameters"), strict: bool = False
) -> tuple[WrittenCall, int]:
    """The call that begins at ``at`` and where it ends. Raises ``ValueError`` with what the text is instead.

    ``strict`` allows ``name`` and the first of ``keys`` only. Else any of ``keys``, members ``id`` and ``type``,
    arguments as JSON within a string, and line breaks within strings are forgiven.
    """
    members, end = _members(text, at, _decoder(strict))
    given = [key for key in (keys[:1] if strict else keys) if key in members]
    allowed = {"name", *given[:1], *(() if strict else ("id", "type"))}
    name, _ = members.get("name", (None, ""))
    if not isinstance(name, str) or set(members) - allowed:
        raise ValueError(_NOT_A_CALL)
    value, written = members[given[0]] if given else (dict[str, Any](), "{}")
    if isinstance(value, str) and not strict:
        value, written = _loads(value), value
    return WrittenCall(checked_name(name), _object(value, written)), end


def read_arguments(text: str, at: int, *, strict: bool = False) -> tuple[str, int]:
    """The JSON text of the object that begins at ``at``, and where it ends. Raises ``ValueError``."""
    start = skip(text, at)
    value, end = _decode(_decoder(strict), text, start)
    return _object(value, text[start:end]), end


def checked_name(name: str) -> str:
    """``name`` if it can name a tool. Raises ``ValueError``."""
    if not name or not name.isprintable():
        raise ValueError("has a name that is empty or not printable")
    return name


def skip(text: str, at: int, pattern: re.Pattern[str] = _SPACE) -> int:
    """Where ``pattern`` (white space), which may be empty, ends."""
    match = pattern.match(text, at)
    return at if match is None else match.end()


def _decoder(strict: bool) -> json.JSONDecoder:
    return json.JSONDecoder(strict=strict, parse_constant=_no_constant)


def _members(text: str, at: int, decoder: json.JSONDecoder) -> tuple[dict[str, tuple[Any, str]], int]:
    """The members of a JSON object, each as (value, its text), and where the object ends."""
    members: dict[str, tuple[Any, str]] = {}
    start = skip(text, at)
    if not text.startswith("{", start):
        _decode(decoder, text, start)
        raise ValueError(_NOT_A_CALL)
    at = skip(text, start + 1)
    while not text.startswith("}", at):
        key, at = _decode(decoder, text, skip(text, _expect(text, at, ",")) if members else at)
        if not isinstance(key, str):
            raise ValueError("is not JSON: a key is not a string")
        start = skip(text, _expect(text, skip(text, at), ":"))
        value, at = _decode(decoder, text, start)
        members[key] = (value, text[start:at])
        at = skip(text, at)
    return members, at + 1


def _decode(decoder: json.JSONDecoder, text: str, at: int) -> tuple[Any, int]:
    try:
        return decoder.raw_decode(text, at)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {str(error)[:200]}") from error


def _expect(text: str, at: int, sign: str) -> int:
    if not text.startswith(sign, at):
        raise ValueError(f"is not JSON: no {sign!r} at character {at}")
    return at + 1


def _loads(text: str) -> Any:
    try:
        return json.loads(text, strict=False, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"has arguments that are not JSON: {str(error)[:200]}") from error


def _object(value: Any, written: str) -> str:
    """``written`` if it is an object in JSON by the book, else the same object written so."""
    if not isinstance(value, dict):
        raise ValueError("has arguments that are not an object")
    try:
        written.encode()
        json.loads(written)
    except ValueError:  # a line break within a string, a lone surrogate
        return json.dumps(value)
    except RecursionError as error:
        raise ValueError("has arguments that are nested too deep") from error
    return written


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _closed(text: str, at: int, strict: bool) -> int:
    """Where a call ends whose object ends at ``at``."""
    after = skip(text, at)
    if text.startswith(CLOSE, after):
        return after + len(CLOSE)
    if after == len(text) or text.startswith(OPEN, after):
        if strict:
            raise ValueError("is not closed")
        return at
    raise ValueError(f"has something between its object and {CLOSE}")


def _resume(text: str, body: int) -> int:
    """Where to read on after a call that could not be read: behind its tag, or before the next call."""
    close, following = text.find(CLOSE, body), text.find(OPEN, body)
    ends = [end for end in (close + len(CLOSE) if close >= 0 else -1, following) if end >= 0]
    return min(ends, default=len(text))

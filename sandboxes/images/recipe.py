"""Recipes: how an image is made, as YAML.

    schema: 1
    name: my-image
    from: base                          # debian, host, a recipe of the library, or an image that is built
    steps:
      - apt: [sqlite3]
      - pip: [flask==3.0.3]
      - npm: [prettier]
      - copy: {app: /opt/app}           # source beside the recipe, place in the image
      - run: make -C /opt/app install   # as root, without a network
      - toolbox: {~/agent: /opt/agent}  # shown read-only in every sandbox

Unknown keys are refused; every error names file, line and key.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

from forkgym.sandboxes.errors import ImageError, RecipeError
from forkgym.sandboxes.images.store import NAME, RESERVED, library
from forkgym.sandboxes.yamltext import Document, Location, parse

SCHEMA = 1
_KEYS = ("schema", "name", "from", "steps")
_STEPS = ("apt", "pip", "npm", "copy", "run", "toolbox")
# No paths, addresses or options: those would make the downloader run foreign code outside of a sandbox.
_PACKAGE = {
    "apt": re.compile(r"[a-z0-9][a-z0-9.+-]*[a-z0-9+](:[a-z0-9-]+)?(=[A-Za-z0-9.+:~-]+)?"),
    "pip": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,\s-]*\])?\s*([<>=!~][^@/;]*)?(;[^@/]*)?"),
    "npm": re.compile(r"(@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*(@[A-Za-z0-9.^~<>=*|\s-]+)?"),
}


@dataclass(frozen=True)
class Step:
    """One step. ``value``: packages, (source, place) pairs, or a command. ``where`` is ``file:line``."""

    kind: str
    value: tuple[str, ...] | tuple[tuple[str, str], ...] | str
    where: str

    @property
    def title(self) -> str:
        """The step in one line."""
        if isinstance(self.value, str):
            return f"{self.kind}: {self.value.strip().splitlines()[0]}"
        parts = (part if isinstance(part, str) else " → ".join(part) for part in self.value)
        return f"{self.kind}: {', '.join(parts)}"


@dataclass(frozen=True)
class Recipe:
    """A recipe that was read; ``folder`` is where its sources lie."""

    name: str
    base: str
    steps: tuple[Step, ...]
    folder: Path

    @property
    def digest(self) -> str:
        """Differs when the recipe says something else; files that it copies do not count."""
        said = [self.name, self.base, [(step.kind, step.value) for step in self.steps]]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


def load(name: str) -> Recipe:
    """The recipe in this file, or the one of this name in the library. Raises ``RecipeError`` and ``ImageError``."""
    path = library().get(name) or Path(name)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        near = difflib.get_close_matches(name, library(), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the library has: {', '.join(library())}"
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise ImageError(f"no recipe {name!r}: as a file, {reason}; {hint}") from error
    return read(text, str(path), path.parent)


def read(text: str, name: str, folder: Path) -> Recipe:
    """Parse and check a recipe; ``name`` is how errors call the file. Raises ``RecipeError``."""
    document = parse(text, name, RecipeError)
    data = _mapping(document, (), document.data, _KEYS)
    for key in _KEYS[:3]:
        if key not in data:
            raise document.error((), f"the key {key!r} is missing")
    if type(data["schema"]) is not int or data["schema"] != SCHEMA:
        raise document.error(("schema",), f"this version reads schema {SCHEMA}")
    for key in ("name", "from"):
        if not isinstance(data[key], str) or not NAME.fullmatch(data[key]):
            raise document.error((key,), "must be lower-case letters, digits, '.', '_' and '-', at most 63")
    if data["name"] in (*RESERVED, data["from"]):
        raise document.error(("name",), f"{data['name']!r} is taken; choose another name")
    steps = data.get("steps", [])
    if not isinstance(steps, list):
        raise document.error(("steps",), "must be a list of steps")
    entries = enumerate(cast("list[Any]", steps))
    made = [step for index, entry in entries for step in _steps(document, ("steps", index), entry)]
    return Recipe(data["name"], data["from"], tuple(made), folder)


def _steps(document: Document, at: Location, entry: Any) -> list[Step]:
    data = _mapping(document, at, entry, _STEPS)
    if len(data) != 1:
        raise document.error(at, f"a step has exactly one key of: {', '.join(_STEPS)}")
    kind, value = next(iter(data.items()))
    place = (*at, kind)
    where = f"{document.name}:{document.lines.get(place, 1)}"
    if kind == "run":
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            raise document.error(place, "must be a command")
        return [Step(kind, value, where)]
    if kind in _PACKAGE:
        return [Step(kind, tuple(_packages(document, place, kind, value)), where)]
    if not isinstance(value, dict) or not value:
        raise document.error(place, "must say what goes where, such as {app: /opt/app}")
    pairs = tuple(_pair(document, place, pair) for pair in cast("dict[Any, Any]", value).items())
    # A toolbox is a layer by itself.
    return [Step(kind, pairs, where)] if kind == "copy" else [Step(kind, (pair,), where) for pair in pairs]


def _packages(document: Document, at: Location, kind: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not value:
        raise document.error(at, "must be a list of packages")
    packages: list[str] = []
    for index, package in enumerate(cast("list[Any]", value)):
        if not isinstance(package, str) or not _PACKAGE[kind].fullmatch(package):
            raise document.error((*at, index), f"{package!r} is not a package name with an optional version")
        packages.append(package)
    return packages


def _pair(document: Document, at: Location, pair: tuple[Any, Any]) -> tuple[str, str]:
    source, target = pair
    if not isinstance(source, str) or not source or "\0" in source:
        raise document.error(at, f"{source!r} is not a path")
    where = (*at, source)
    if not isinstance(target, str) or not target.startswith("/") or "\0" in target:
        raise document.error(where, f"{target!r} must be an absolute path in the image")
    plain = PurePosixPath(target)
    if ".." in plain.parts or len(plain.parts) < 2 or plain.parts[1] in ("proc", "dev", "sys"):
        raise document.error(where, f"{target!r} is no place for files of an image")
    return source, target


def _mapping(document: Document, at: Location, value: Any, known: Iterable[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise document.error(at, f"must hold keys of: {', '.join(known)}")
    for key in cast("dict[Any, Any]", value):
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            raise document.error((*at, key), f"unknown key; {hint}")
    return cast("dict[str, Any]", value)

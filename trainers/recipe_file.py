"""Reading recipes: YAML plus ``key.sub=value`` overrides, with errors that name file, line and the nearest key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from forkgym.errors import ConfigError
from forkgym.registry import unknown
from forkgym.trainers.recipe import (
    RECIPES,
    AwrRecipe,
    DistillRecipe,
    DpoRecipe,
    GrpoRecipe,
    PpoRecipe,
    Recipe,
    SelfDistillRecipe,
    SftRecipe,
)

Key = tuple[str, ...]
_R = TypeVar("_R", bound=Recipe)


class _Loader(yaml.SafeLoader):
    """YAML 1.1 without its trap: ``1e-5`` is a number, not a text."""


cast(Any, _Loader).add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


@dataclass
class _Source:
    """Values read so far, and where each key was written."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    places: dict[Key, str] = field(default_factory=dict[Key, str])


def bundled() -> dict[str, Path]:
    """Recipes that come with the package, by name."""
    folder = Path(str(files("forkgym.trainers"))) / "recipes"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def load(recipe: str | PathLike[str], overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of a file or a bundled name, with ``key.sub=value`` overrides. Raises ``ConfigError``."""
    path = bundled().get(str(recipe), Path(recipe))
    if path.suffix not in (".yaml", ".yml"):
        raise ConfigError(unknown("recipe", str(recipe), {name: name for name in bundled()}) + "; or a .yaml file")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the recipe {path}: {error.strerror}") from error
    source = _read(text, str(path))
    for override in overrides:
        _apply(source, override)
    return _validate(source, str(path))


def from_values(values: Mapping[str, Any], where: str) -> Recipe:
    """The recipe of ``values``; ``where`` begins each line of an error. Raises ``ConfigError``."""
    return _validate(_Source(dict(values)), where)


def load_grpo(recipe: str | PathLike[str], overrides: Sequence[str] = ()) -> GrpoRecipe:
    """Like ``load``, for a recipe that must be of ``algorithm: grpo``."""
    return _of(recipe, overrides, GrpoRecipe)


def load_ppo(recipe: str | PathLike[str], overrides: Sequence[str] = ()) -> PpoRecipe:
    """Like ``load``, for a recipe that must be of ``algorithm: ppo``."""
    return _of(recipe, overrides, PpoRecipe)


def load_sft(recipe: str | PathLike[str], overrides: Sequence[str] = ()) -> SftRecipe:
    """Like ``load``, for a recipe that must be of ``algorithm: sft``."""
    return _of(recipe, overrides, SftRecipe)


def load_dpo(recipe: str | PathLike[str], overrides: Sequence[str] = ()) -> DpoRecipe:
    """Like ``load``, for a recipe that must be of ``algorithm: dpo``."""
    return _of(recipe, overrides, DpoRecipe)


def load_awr(recipe: str | PathLike[str], overrides: Sequence[str] = ()) -> AwrRecipe:
    """Like ``load``, for a recipe that must be of ``algorithm: awr``."""
    return _of(recipe, overrides, AwrRecipe)


def load_distill(recipe: str | PathLike[str], overrides: Sequence[str] = ()) -> DistillRecipe | SelfDistillRecipe:
    """Like ``load``, for a recipe that must be of ``algorithm: distill`` or ``self_distill``."""
    return _of(recipe, overrides, DistillRecipe, SelfDistillRecipe)


def _of(recipe: str | PathLike[str], overrides: Sequence[str], *kinds: type[_R]) -> _R:
    loaded = load(recipe, overrides)
    if not isinstance(loaded, kinds):
        wanted = " or ".join(name for name, kind in RECIPES.items() if kind in kinds)
        raise ConfigError(f"{recipe} is a recipe for {loaded.algorithm}, not {wanted}")
    return loaded


def _read(text: str, name: str) -> _Source:
    try:
        root = cast(Any, yaml.compose(text, Loader=_Loader))
        values: Any = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{name} is not YAML: {error}") from error
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{name}: a recipe is a mapping of sections")
    source = _Source(values)
    _walk(root, (), name, source.places)
    return source


def _walk(node: yaml.MappingNode, prefix: Key, name: str, places: dict[Key, str]) -> None:
    pairs = cast("list[tuple[yaml.Node, yaml.Node]]", node.value)
    for key_node, value_node in pairs:
        key = (*prefix, str(key_node.value))
        place = f"{name}:{key_node.start_mark.line + 1}"
        if key in places:
            raise ConfigError(f"{place}: {'.'.join(key)} is given twice, first at {places[key]}")
        places[key] = place
        if isinstance(value_node, yaml.MappingNode):
            _walk(value_node, key, name, places)


def _apply(source: _Source, override: str) -> None:
    dotted, sign, text = override.partition("=")
    if not sign or not dotted:
        raise ConfigError(f"override {override!r}: write key.sub=value")
    *parents, last = key = tuple(dotted.split("."))
    try:
        value: Any = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or error
        raise ConfigError(f"override {override!r}: the value is not YAML: {problem}") from error
    section: dict[str, Any] = source.values
    for parent in parents:
        inner = section.get(parent)
        if inner is None:
            inner = section[parent] = {}
        if not isinstance(inner, dict):
            raise ConfigError(f"override {override!r}: {parent} is a value, not a section")
        section = cast("dict[str, Any]", inner)
    section[last] = value
    source.places = {place: where for place, where in source.places.items() if place[: len(key)] != key}
    source.places[key] = f"override {override!r}"


def _validate(source: _Source, name: str) -> Recipe:
    algorithm = source.values.get("algorithm")
    if algorithm is None:
        raise ConfigError(f"{name}: add a line 'algorithm: NAME', one of {', '.join(RECIPES)}")
    if algorithm not in RECIPES:
        place = source.places.get(("algorithm",), name)
        raise ConfigError(f"{place}: {unknown('algorithm', algorithm, dict(RECIPES))}")
    kind = RECIPES[algorithm]
    try:
        return kind.model_validate(source.values)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(kind, detail, source, name) for detail in error.errors())) from error


def _explain(kind: type[BaseModel], detail: ErrorDetails, source: _Source, name: str) -> str:
    """One line: the place where the key or its nearest written parent stands, and what is wrong."""
    key = tuple(str(part) for part in detail["loc"])
    written = next((key[:n] for n in range(len(key), 0, -1) if key[:n] in source.places), ())
    place = source.places.get(written, name)
    dotted = ".".join(key) or "recipe"
    if detail["type"] == "extra_forbidden":
        known = list(_section(kind, key[:-1]).model_fields)
        near = difflib.get_close_matches(key[-1], known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        where = f" in {'.'.join(key[:-1])}" if key[:-1] else ""
        return f"{place}: unknown key {key[-1]!r}{where}{hint} Known: {', '.join(known)}"
    if detail["type"] == "missing":
        return f"{place}: {dotted} is missing; add it"
    message = detail["msg"].removeprefix("Value error, ")
    got = "" if detail["type"] == "value_error" else f", got {detail['input']!r}"
    return f"{place}: {dotted}: {message}{got}"


def _section(kind: type[BaseModel], key: Key) -> type[BaseModel]:
    for part in key:
        if not part.isdecimal():  # a number is a place in a list of sections
            annotation: Any = kind.model_fields[part].annotation
            kind = next((a for a in get_args(annotation) if isinstance(a, type)), annotation)
    return kind

"""The recipes that come with ForkGym, and every option of a recipe, as tables."""

from __future__ import annotations

import types
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from forkgym.trainers.recipe import RECIPES, Run
from forkgym.trainers.recipe_file import bundled, load


@dataclass(frozen=True)
class Bundled:
    """A recipe of the package: its ``name``, what it trains by, and the comment that it begins with."""

    name: str
    algorithm: str
    about: str
    path: Path


def bundled_recipes() -> list[Bundled]:
    """All recipes of the package, by name."""
    return [Bundled(name, load(name).algorithm, _about(path), path) for name, path in bundled().items()]


def options_reference() -> str:
    """Every option of every section, from the schema itself, as Markdown."""
    sections: dict[str, tuple[type[BaseModel], list[str]]] = {"": (Run, [*RECIPES])}
    for algorithm, kind in RECIPES.items():
        for name, section in _sections(kind, "")[1:]:
            sections.setdefault(name, (section, []))[1].append(algorithm)
    lines = [
        "# Recipes",
        "",
        "Written by `forkgym recipes --reference` from the schema, and compared with it by a test. An unknown key and",
        "an option that would have no effect are errors. `forkgym train NAME section.option=value` replaces one.",
        f"`algorithm` is one of {', '.join(f'`{name}`' for name in RECIPES)}.",
    ]
    for name, (section, algorithms) in sections.items():
        used = "all" if len(algorithms) == len(RECIPES) else ", ".join(algorithms)
        about = _first(section.__doc__).replace("``", "`")
        lines += ["", f"## {name or 'every recipe'}", "", f"{about} Used by: {used}.", ""]
        lines += ["| option | value | default | |", "| --- | --- | --- | --- |"]
        lines += [line for field in section.model_fields for line in _row(section, field)]
    for algorithm, kind in RECIPES.items():
        own = [field for field in kind.model_fields if field not in Run.model_fields and field != "algorithm"]
        if rows := [line for field in own for line in _row(kind, field)]:
            lines += [
                "",
                f"## {algorithm} only",
                "",
                "| option | value | default | |",
                "| --- | --- | --- | --- |",
                *rows,
            ]
    return "\n".join(lines) + "\n"


def _sections(kind: type[BaseModel], prefix: str) -> list[tuple[str, type[BaseModel]]]:
    found = [(prefix, kind)]
    for name, field in kind.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found += _sections(field.annotation, f"{prefix}.{name}".lstrip("."))
    return found


def _row(section: type[BaseModel], name: str) -> list[str]:
    field = section.model_fields[name]
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
        return []
    default = "needed" if field.default is PydanticUndefined and field.default_factory is None else _shown(
        field.get_default(call_default_factory=True)
    )  # fmt: skip
    about = " ".join((field.description or "").split())
    return [f"| `{name}` | {_kind(field.annotation)} | {default} | {about.replace('``', '`')} |"]


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    return "" if value in ((), {}) else f"`{list(value) if isinstance(value, tuple) else value}`"  # pyright: ignore


def _kind(annotation: Any) -> str:
    """A type in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_kind(part) for part in arguments if part is not type(None)))
    if origin in (tuple, list):
        return f"list of {_kind(arguments[0])}"
    if origin is dict:
        return "mapping"
    return {float: "number", int: "whole number", str: "text", bool: "`true`, `false`"}.get(annotation, "any")


def _about(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    comments = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
    return " ".join(comments)


def _first(text: str | None) -> str:
    return " ".join((text or "").partition("\n\n")[0].split())

"""What the command line takes from the trainers by name, which no type checker sees, is there."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import forkgym.cli

SOURCES = sorted(Path(forkgym.cli.__file__).parent.glob("*.py"))
USES = sorted(
    (node.value.args[0].value, node.attr)
    for path in SOURCES
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.Attribute)
    and isinstance(node.value, ast.Call)
    and getattr(node.value.func, "id", "") == "engine"
    and isinstance(node.value.args[0], ast.Constant)
)


@pytest.mark.parametrize(("module", "name"), [(str(module), name) for module, name in dict.fromkeys(USES)])
def test_a_name_taken_late_exists(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(f"forkgym.trainers.{module}"), name)


def test_the_uses_are_found() -> None:
    assert ("loop", "make_player") in USES

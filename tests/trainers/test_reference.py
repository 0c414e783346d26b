"""The page of options is that of the schema; every bundled recipe says what it is."""

from __future__ import annotations

import re
from pathlib import Path

from forkgym.trainers.recipe import RECIPES
from forkgym.trainers.recipe_file import bundled
from forkgym.trainers.reference import bundled_recipes, options_reference
from forkgym.trainers.sections import OptimizerSection

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"


def test_the_page_is_what_the_command_prints() -> None:
    assert PAGE.read_text(encoding="utf-8") == options_reference()


def test_every_option_has_a_row() -> None:
    text = options_reference()
    rows = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    for kind in RECIPES.values():
        for name in kind.model_fields:
            assert name in rows or f"## {name}\n" in text or name == "algorithm", name
    assert set(OptimizerSection.model_fields) <= set(rows)
    assert "| `lam` | number | null | Default 0.95. |" in text
    assert "## critic.optimizer\n" in text


def test_every_bundled_recipe_says_what_it_is() -> None:
    found = bundled_recipes()
    assert [one.name for one in found] == list(bundled())
    assert all(one.about and one.algorithm in RECIPES for one in found)

"""``forkgym recipes``: what can be trained by, and every option."""

from __future__ import annotations

from rich.table import Table

from forkgym.cli.output import out, print_json, print_table
from forkgym.trainers.reference import bundled_recipes, options_reference


def recipes_command(*, reference: bool, as_json: bool) -> None:
    """List the recipes of the package, or all options of the schema."""
    if reference:
        out.print(options_reference(), markup=False, soft_wrap=True, end="")
        return
    found = bundled_recipes()
    if as_json:
        print_json([{"name": one.name, "algorithm": one.algorithm, "about": one.about} for one in found])
        return
    table = Table("recipe", "algorithm", "what it is")
    for one in found:
        table.add_row(one.name, one.algorithm, one.about)
    print_table(table)

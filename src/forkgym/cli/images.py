"""``forkgym images``: list, build and prune the images that sandboxes start from."""

from __future__ import annotations

import time
from dataclasses import asdict

from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from forkgym.cli.output import clock, err, out, print_json, print_table
from forkgym.sandboxes.images import inventory
from forkgym.sandboxes.images.build import State, build
from forkgym.sandboxes.images.docker import daemon, to_docker
from forkgym.sandboxes.images.inventory import Listed
from forkgym.sandboxes.images.recipe import load


def list_images(*, as_json: bool) -> None:
    """A line for each image, those of the library that are not built included."""
    found = inventory.listed()
    if as_json:
        print_json([asdict(image) for image in found])
        return
    table = Table(box=None, header_style="dim", pad_edge=False)
    for title in ("image", "state", "id"):
        table.add_column(title, no_wrap=True)
    for title in ("size", "layers", "used by", "last used"):
        table.add_column(title, no_wrap=True, justify="right")
    table.add_row("host", "ready", "", "", "", "", "")
    for image in found:
        table.add_row(*_row(image))
    print_table(table)
    if any(image.state != "ready" for image in found):
        out.print("\n`forkgym images build NAME` builds one.", style="dim")


def build_image(name: str, *, docker: bool, as_json: bool) -> None:
    """Build one image from a recipe's file or name; progress goes to standard error."""
    began = time.monotonic()
    recipe = load(name)
    engine = daemon() if docker else None  # before the work, as one that is absent would make it be for nothing

    def report(title: str, state: State) -> None:
        passed = clock(time.monotonic() - began)
        err.print(f"[dim]{passed}[/dim] {state:>8}  {escape(title)}", no_wrap=True, overflow="ellipsis")

    chain = build(recipe, report)
    size = sum(layer.size for layer in chain.layers)
    tag = to_docker(chain.ref, engine) if engine else None
    if as_json:
        layers = [layer.step for layer in reversed(chain.layers)]
        print_json({"name": chain.name, "ref": chain.ref, "size": size, "layers": layers, "docker": tag})
        return
    out.print(f"{escape(chain.ref)}: {len(chain.layers)} layers, {decimal(size)}")
    if tag:
        out.print(f"in Docker: {escape(tag)}")


def prune_images(*, everything: bool, as_json: bool) -> None:
    """Remove what no image needs; ``everything``: also images that no sandbox or snapshot uses."""
    removed = inventory.prune(unused_names=everything)
    if as_json:
        print_json(removed)
        return
    words = {"names": "images", "layers": "layers", "systems": "old states of the host", "builds": "abandoned builds"}
    found = ", ".join(f"{count} {words[kind]}" for kind, count in removed.items() if count)
    out.print(f"removed {found}" if found else "nothing to remove")


def _row(image: Listed) -> tuple[str, ...]:
    if image.last_used is None:
        return escape(image.name), image.state, "", "", "", "", ""
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(image.last_used))
    users = str(len(image.used_by) or "")
    return escape(image.name), image.state, image.id, decimal(image.size), str(len(image.layers)), users, used

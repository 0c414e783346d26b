"""What images there are, how large, and who uses them."""

from __future__ import annotations

from dataclasses import dataclass

from forkgym.sandboxes import state
from forkgym.sandboxes.errors import ImageError
from forkgym.sandboxes.images import recipe
from forkgym.sandboxes.images.store import Store, library, open_store


@dataclass(frozen=True)
class Listed:
    """One image. ``size``: bytes of all its layers; images share layers. ``used_by``: ids of sandboxes and snapshots.

    ``state``: ready, "not built" (a recipe of the library), "outdated" (its recipe says something else now), or broken.
    ``last_used``: seconds since 1970.
    """

    name: str
    state: str
    id: str = ""
    size: int = 0
    layers: tuple[str, ...] = ()
    used_by: tuple[str, ...] = ()
    last_used: float | None = None


def listed() -> list[Listed]:
    """All built images and those that the library could build, by name."""
    root = state.state_dir()
    store = open_store(root)
    users = state.users(root)
    built = [_describe(store, name, users) for name in store.names()]
    names = {image.name for image in built}
    return sorted(
        [*built, *(Listed(name, "not built") for name in library() if name not in names)], key=lambda one: one.name
    )


def prune(unused_names: bool = False) -> dict[str, int]:
    """See ``Store.prune``, for the user's own store."""
    return open_store(state.state_dir()).prune(unused_names)


def _describe(store: Store, name: str, users: dict[str, set[str]]) -> Listed:
    try:
        chain = store.find(name)
    except ImageError:
        return Listed(name, "broken")
    top = chain.layers[0]
    outdated = name in library() and (store.record(name) or {}).get("recipe") != recipe.load(name).digest
    return Listed(
        name,
        "outdated" if outdated else "ready",
        top.id,
        sum(layer.size for layer in chain.layers),
        tuple(layer.step for layer in reversed(chain.layers)),
        tuple(sorted(users.get(top.id, ()))),
        store.last_used(top),
    )

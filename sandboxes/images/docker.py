"""Built images for a Docker daemon: the same tree, imported as one layer."""

from __future__ import annotations

from typing import Any

from forkgym.registry import resolve
from forkgym.sandboxes import state
from forkgym.sandboxes.errors import ImageError
from forkgym.sandboxes.images.export import export_tar
from forkgym.sandboxes.images.store import open_store

LABEL = "forkgym.image"
_ENGINES = {"docker": "forkgym.sandboxes.docker.engine:Engine"}


def daemon() -> Any:
    """The daemon of ``DOCKER_HOST``, which answers. Raises ``SandboxUnavailableError`` and ``MissingExtraError``."""
    engine = resolve("daemon", "docker", _ENGINES, {"docker": "docker"})()
    engine.info()
    return engine


def to_docker(ref: str, engine: Any = None) -> str:
    """Import a built image as ``forkgym/<name>:<id>``, also tagged ``latest``; returns its tag.

    An image that the daemon has already is only tagged. Raises ``SandboxError`` and what ``daemon`` does.
    """
    engine = engine or daemon()
    store = open_store(state.state_dir())
    name, _, layer = store.find(ref).ref.partition("@")
    repository = f"forkgym/{name}"
    tag = f"{repository}:{layer}"
    try:
        engine.image_id(tag)
    except ImageError:
        with store.scratch() as scratch:
            archive = scratch / "image.tar"
            with archive.open("wb") as file:
                export_tar(f"{name}@{layer}", file)
            with archive.open("rb") as file:
                engine.import_image(file, repository, layer, {LABEL: f"{name}@{layer}"})
    engine.tag(tag, repository, "latest")
    return tag

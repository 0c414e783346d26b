"""Built images for a Docker daemon: the same tree, imported as one layer."""

from __future__ import annotations

from typing import Any

from forkgym.errors import MissingExtraError
from forkgym.sandboxes import state
from forkgym.sandboxes.errors import ImageError, SandboxUnavailableError
from forkgym.sandboxes.images.export import export_tar
from forkgym.sandboxes.images.store import open_store

LABEL = "forkgym.image"
_PATIENCE = 600  # seconds


def to_docker(ref: str) -> str:
    """Import a built image as ``forkgym/<name>:<id>``, also tagged ``latest``; returns its tag.

    An image that the daemon has already is only tagged. Raises ``ImageError`` and ``SandboxUnavailableError``.
    """
    try:
        import docker
        import docker.errors
        import requests.exceptions
    except ModuleNotFoundError as error:
        raise MissingExtraError("images for Docker need the package 'docker': pip install 'forkgym[docker]'") from error
    store = open_store(state.state_dir())
    name, _, layer = store.find(ref).ref.partition("@")
    repository = f"forkgym/{name}"
    try:
        api = docker.from_env(timeout=_PATIENCE).api
    except (docker.errors.DockerException, OSError) as error:
        raise SandboxUnavailableError(f"no Docker daemon answers: {error}. Start it, or set DOCKER_HOST") from error
    try:
        if not api.images(f"{repository}:{layer}", quiet=True):
            _import(api, f"{name}@{layer}", repository, layer)
        api.tag(f"{repository}:{layer}", repository, "latest", force=True)
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
        raise ImageError(f"the Docker daemon did not take the image {ref!r}: {error}") from error
    return f"{repository}:{layer}"


def _import(api: Any, ref: str, repository: str, tag: str) -> None:
    store = open_store(state.state_dir())
    with store.scratch() as scratch:
        archive = scratch / "image.tar"
        with archive.open("wb") as file:
            export_tar(ref, file)
        api.import_image_from_file(str(archive), repository, tag, changes=[f"LABEL {LABEL}={ref}"])

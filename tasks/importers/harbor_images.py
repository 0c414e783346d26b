"""The Docker image of a Harbor task, from its ``environment/``. Nothing is pulled: a base that is absent is named."""

from __future__ import annotations

import io
from typing import Any

from forkgym.errors import MissingExtraError
from forkgym.sandboxes.errors import ImageError, SandboxUnavailableError
from forkgym.tasks import tree
from forkgym.tasks.base import FileChange, Task
from forkgym.tasks.importers import dockerfile
from forkgym.tasks.importers.harbor import DOCKERFILE, context_of, image_tag


def build(task: Task, network: str = "none") -> bool:
    """Build the image that the task works in, unless it is there. False if it is one that only can be pulled.

    ``network`` is the Docker network that the steps of the build may use. Raises ``ImageError`` naming the task and the
    base that is missing or the step that failed, ``SandboxUnavailableError`` without a daemon, and
    ``MissingExtraError``.
    """
    context = context_of(task.origin)
    if DOCKERFILE not in task.origin or task.image != image_tag(task.id, context):
        return False
    docker, client = _client()
    try:
        if _present(docker, client, task.image):
            return True
        text = task.origin[DOCKERFILE].decode("utf-8", "replace")
        if absent := [base for base in dockerfile.bases(text) if not _present(docker, client, base)]:
            raise ImageError(f"{task.id}: its base image {absent[0]!r} is not here; docker pull {absent[0]}")
        modes = {path: 0o755 if data.startswith(b"#!") else 0o644 for path, data in context.items()}
        packed = tree.pack({path: FileChange(data, modes[path]) for path, data in context.items()})
        how: dict[str, Any] = {"custom_context": True, "pull": False, "rm": True, "network_mode": network}
        client.images.build(fileobj=io.BytesIO(packed), tag=task.image, **how)
    except docker.errors.BuildError as error:
        said = "".join(str(part.get("stream", "")) for part in error.build_log).strip()[-600:]
        raise ImageError(f"{task.id}: {DOCKERFILE} cannot be built here: {error}: {said}") from error
    except docker.errors.DockerException as error:
        raise ImageError(f"{task.id}: {DOCKERFILE} cannot be built here: {error}") from error
    finally:
        client.close()
    return True


def _client() -> tuple[Any, Any]:
    try:
        import docker  # pyright: ignore
        import docker.errors  # pyright: ignore
    except ImportError as error:
        raise MissingExtraError("building a Dockerfile needs the docker SDK: pip install 'forkgym[docker]'") from error
    try:
        client: Any = docker.from_env(timeout=600)  # pyright: ignore
        client.ping()
    except docker.errors.DockerException as error:
        raise SandboxUnavailableError(f"no Docker daemon answers: {error}") from error
    return docker, client


def _present(docker: Any, client: Any, name: str) -> bool:
    try:
        client.images.get(name)
    except docker.errors.ImageNotFound:
        return False
    return True

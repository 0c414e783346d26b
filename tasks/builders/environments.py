"""Environments as images: the recipe stands beside the tasks, so that other machines can build the same."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from forkgym.sandboxes.errors import ImageError
from forkgym.sandboxes.images import build, recipe
from forkgym.tasks.builders.history import UnfitCommit
from forkgym.tasks.builders.language import Environment

FOLDER = "images"


class Environments:
    """Images over ``base``, by what they hold: each is built once, and what could not be built is not tried again."""

    def __init__(self, project: str, out: Path, base: str) -> None:
        self._base = base
        self._prefix = re.sub(r"[^a-z0-9]+", "-", project.lower()).strip("-")[:40] or "project"
        self._out = out
        self._failed: dict[str, str] = {}

    def first(self, environments: Iterable[Environment]) -> tuple[str, Environment]:
        """The name of an image for the first environment that can be built. Raises ``UnfitCommit``."""
        problem = ""
        for environment in environments:
            try:
                return self._image(environment.steps), environment
            except ImageError as error:
                problem = problem or str(error)
        raise UnfitCommit("environment cannot be built", problem[-500:])

    def _image(self, steps: tuple[Mapping[str, Any], ...]) -> str:
        if not steps:
            return self._base
        plain = [dict(step) for step in steps]
        name = f"{self._prefix}-{hashlib.sha256(json.dumps([self._base, plain]).encode()).hexdigest()[:10]}"
        if name in self._failed:
            raise ImageError(self._failed[name])
        text = yaml.safe_dump(
            {"schema": 1, "name": name, "from": self._base, "steps": plain}, sort_keys=False, width=100
        )
        path = self._out / FOLDER / f"{name}.yaml"
        try:
            build.build(recipe.read(text, str(path), path.parent))
        except ImageError as error:
            self._failed[name] = str(error)
            raise
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return name

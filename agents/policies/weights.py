"""The weights of a model's folder with some of them replaced, as engines take them that load all or nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from safetensors import safe_open
from torch import Tensor

from forkgym.agents.errors import PolicyError

_HEAD = "lm_head.weight"


def _open(path: Path) -> Any:
    return cast(Any, safe_open)(path, framework="pt")


class FolderWeights:
    """Names and tensors of the safetensors files in ``folder``; raises ``PolicyError`` if there are none."""

    def __init__(self, folder: Path) -> None:
        self._files = sorted(folder.glob("*.safetensors"))
        self._shapes: dict[str, tuple[int, ...]] = {}
        for path in self._files:
            with _open(path) as file:
                names: list[str] = list(file.keys())
                self._shapes |= {name: tuple(file.get_slice(name).get_shape()) for name in names}
        if not self._shapes:
            raise PolicyError(f"no .safetensors files in {folder}: new weights cannot be given to its engine")
        config = json.loads((folder / "config.json").read_text())
        self._tied = bool(config.get("tie_word_embeddings")) and _HEAD not in self._shapes

    def check(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """``weights`` by the names of the files. Raises ``PolicyError`` for a wrong name or shape.

        A tied output head is the embedding under a second name, and left out.
        """
        own = {name: value for name, value in weights.items() if not (self._tied and name == _HEAD)}
        unknown = sorted(set(own) - set(self._shapes))
        if unknown:
            raise PolicyError(f"no such weights in the model: {', '.join(unknown[:3])}")
        for name, value in own.items():
            if tuple(value.shape) != self._shapes[name]:
                raise PolicyError(f"weight {name!r} has shape {tuple(value.shape)}, not {self._shapes[name]}")
        return own

    def whole(self, changed: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Every weight once: from ``changed``, or else as it lies in the folder."""
        for path in self._files:
            with _open(path) as file:
                names: list[str] = list(file.keys())
                for name in names:
                    yield name, changed[name] if name in changed else file.get_tensor(name)

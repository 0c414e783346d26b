"""Trainers, and their arithmetic as pure functions. Importing this package imports no torch; using a name does."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from forkgym.errors import MissingExtraError

if TYPE_CHECKING:
    from forkgym.trainers import advantages, objectives
    from forkgym.trainers.trainer import ActorCriticTrainer, GRPOTrainer

__all__ = ["ActorCriticTrainer", "GRPOTrainer", "advantages", "objectives"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = name if name.islower() else "trainer"
    try:
        found = importlib.import_module(f"{__name__}.{module}")
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"training needs the package {error.name!r}: pip install 'forkgym[train]'") from error
    return found if module == name else getattr(found, name)

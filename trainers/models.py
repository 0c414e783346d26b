"""Models that are trained: which of their weights, by name, and others put in their place for a while."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from torch import Tensor, nn

from forkgym.agents.models import LanguageModel, load_language_model
from forkgym.errors import ConfigError
from forkgym.trainers.sections import ModelSection


def load_model(section: ModelSection, seed: int = 0) -> LanguageModel:
    """The model of a recipe, with ``train_layers`` applied. ``seed`` decides the weights of ``tiny-random``.

    Raises ``ConfigError`` for an unknown name or an unsupported architecture, ``MissingExtraError`` for an absent
    package. ``start_from`` is the caller's: see ``forkgym.trainers.checkpoint.load_weights``.
    """
    loaded = load_language_model(section.name, seed)
    choose_trained(loaded.model, section.train_layers)
    return loaded


def choose_trained(model: Any, layers: int | None) -> None:
    """Let gradients flow into the top ``layers`` and the final norm only; ``None`` for all weights.

    Frozen layers below keep no activations, so memory and time of the backward pass shrink with ``layers``.
    """
    if layers is None:
        model.requires_grad_(True)
        return
    trunk = model.base_model
    blocks, norm = getattr(trunk, "layers", None), getattr(trunk, "norm", None)
    if not isinstance(blocks, nn.ModuleList) or not isinstance(norm, nn.Module):
        raise ConfigError(f"train_layers: {type(model).__name__} has no list of layers and final norm; leave it null")
    if layers > len(blocks):
        raise ConfigError(f"train_layers is {layers}, but the model has {len(blocks)} layers")
    model.requires_grad_(False)
    for part in (*blocks[len(blocks) - layers :], norm):
        part.requires_grad_(True)


def trained_weights(model: Any) -> dict[str, Tensor]:
    """The weights that are trained, by name, detached but not copied; a tied output head is listed under both names."""
    weights = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    pointers = {value.data_ptr() for value in weights.values()}
    for name, value in cast("Mapping[str, Tensor]", model.state_dict()).items():
        if name not in weights and value.data_ptr() in pointers:
            weights[name] = value.detach()
    return weights


@contextmanager
def swapped_in(model: Any, weights: Mapping[str, Tensor]) -> Generator[None]:
    """Compute with other weights for a while, for example those of a reference policy; no copy is made."""
    own = {name: p for name, p in model.named_parameters() if name in weights}
    kept = {name: p.data for name, p in own.items()}
    for name, parameter in own.items():
        parameter.data = weights[name]
    try:
        yield
    finally:
        for name, parameter in own.items():
            parameter.data = kept[name]

"""Checkpoints that are whole or absent, and resume exactly.

One folder ``step-000012`` holds ``weights.safetensors`` (what is trained), ``training.safetensors`` (optimizer moments,
torch's generator), ``state.json`` (step, data cursor, ledger, other generators), for each further part a file such as
``critic.safetensors`` (weights and moments), and ``manifest.json`` with the SHA-256 of each file. It is written under
another name, synced and renamed; a reader takes the newest that matches its manifest.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import safetensors.torch as safetensors
import torch
from safetensors import SafetensorError
from torch import Tensor

from forkgym.trainers.errors import CheckpointError

SCHEMA_VERSION = 1
WEIGHTS, TRAINING, STATE, MANIFEST = "weights.safetensors", "training.safetensors", "state.json", "manifest.json"
FILES = (WEIGHTS, TRAINING, STATE)
_TORCH_RNG = "rng.torch"


@dataclass
class TrainState:
    """Where a run stands between two steps.

    ``cursor`` counts the groups drawn from the task order. ``ledger`` lists every (task visit, sample) that was
    trained, each once. ``in_flight`` lists the groups the next step will play: a resumed run must plan the same.
    ``version`` counts the weights given to the sampler, so that no two of a run share a number.
    """

    step: int = 0
    version: int = 0
    cursor: int = 0
    elapsed_s: float = 0.0
    ledger: list[str] = field(default_factory=list[str])
    in_flight: list[str] = field(default_factory=list[str])
    recipe: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Part:
    """Something besides the model that is trained by an optimizer of its own."""

    module: Any
    optimizer: torch.optim.Optimizer


Parts = Mapping[str, Part]


def save(
    folder: Path, state: TrainState, model: Any, optimizer: torch.optim.Optimizer, keep: int, parts: Parts | None = None
) -> Path:
    """Write the checkpoint of ``state.step`` into ``folder``, then remove all but the newest ``keep``.

    A whole checkpoint of this step stays as it is. What a killed process left half-written is removed.
    """
    target = folder / f"step-{state.step:06d}"
    if target.exists() and not _damage(target):
        return target
    folder.mkdir(parents=True, exist_ok=True)
    for left in (*folder.glob(".writing-*"), *folder.glob(".removing-*")):
        shutil.rmtree(left)
    scratch = folder / f".writing-{target.name}"
    try:
        _write(scratch, state, model, optimizer, parts or {})
    except BaseException as error:
        shutil.rmtree(scratch, ignore_errors=True)
        if isinstance(error, SafetensorError):  # as it reports a full disk
            raise OSError(f"cannot write the checkpoint {target}: {error}; those before it are whole") from error
        raise
    _discard(target)
    scratch.rename(target)
    _sync(folder)
    for old in _steps(folder)[keep:]:
        _discard(old)
    return target


def _write(scratch: Path, state: TrainState, model: Any, optimizer: torch.optim.Optimizer, parts: Parts) -> None:
    scratch.mkdir()
    safetensors.save_file(
        _whole({n: p.detach() for n, p in model.named_parameters() if p.requires_grad}), scratch / WEIGHTS
    )
    safetensors.save_file(_whole(_moments(optimizer, model) | {_TORCH_RNG: torch.get_rng_state()}), scratch / TRAINING)
    for name, part in parts.items():
        weights = {f"weights.{key}": p.detach() for key, p in part.module.named_parameters() if p.requires_grad}
        safetensors.save_file(_whole(weights | _moments(part.optimizer, part.module)), scratch / _file_of(name))
    content = {"schema_version": SCHEMA_VERSION, **asdict(state), "rng": _generators()}
    (scratch / STATE).write_text(json.dumps(content))
    sums = {name: _sha256(scratch / name) for name in (*FILES, *map(_file_of, parts))}
    (scratch / MANIFEST).write_text(json.dumps({"schema_version": SCHEMA_VERSION, "sha256": sums}, indent=1))
    for path in (*scratch.iterdir(), scratch):
        _sync(path)


def latest(folder: Path) -> Path | None:
    """The newest checkpoint in ``folder`` whose files match its manifest; damaged ones are passed over.

    ``None`` if there is none at all. Raises ``CheckpointError`` if all are damaged: no run may begin anew over them.
    """
    steps = _steps(folder)
    whole = next((path for path in steps if not _damage(path)), None)
    if steps and whole is None:
        raise CheckpointError(f"every checkpoint in {folder} is damaged; {steps[0].name}: {_damage(steps[0])}")
    return whole


def find(path: Path) -> Path:
    """A checkpoint from the path of one, of a folder of some, or of a run. Raises ``CheckpointError``."""
    if (path / MANIFEST).is_file():
        if damage := _damage(path):
            raise CheckpointError(f"checkpoint {path} is damaged: {damage}; use another")
        return path
    for folder in (path, path / "checkpoints"):
        if found := latest(folder):
            return found
    raise CheckpointError(f"no whole checkpoint in {path}; name a run folder or a folder step-NNNNNN")


def load_weights(path: Path, model: Any) -> None:
    """Put the weights of a checkpoint into ``model``; those it does not hold stay. Raises ``CheckpointError``."""
    _fill(model, safetensors.load_file(path / WEIGHTS), path)


def _fill(model: Any, stored: dict[str, Tensor], path: Path) -> None:
    own = dict(cast("Iterable[tuple[str, Tensor]]", model.named_parameters()))
    wrong = [name for name, value in stored.items() if name not in own or own[name].shape != value.shape]
    if wrong:
        raise CheckpointError(f"checkpoint {path} is of another model: {wrong[0]!r} does not fit")
    with torch.no_grad():
        for name, value in stored.items():
            own[name].copy_(value)


def restore(path: Path, model: Any, optimizer: torch.optim.Optimizer, parts: Parts | None = None) -> TrainState:
    """Put weights, optimizer moments and random generators back, and return the state. Raises ``CheckpointError``."""
    content: dict[str, Any] = json.loads((path / STATE).read_text())
    if content.pop("schema_version") != SCHEMA_VERSION:
        raise CheckpointError(f"checkpoint {path} was written by another version of forkgym")
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    if trained != set(safetensors.load_file(path / WEIGHTS)):
        raise CheckpointError(f"checkpoint {path} trained other weights than this recipe does (model, train_layers)")
    load_weights(path, model)
    tensors = safetensors.load_file(path / TRAINING)
    torch.set_rng_state(tensors.pop(_TORCH_RNG))
    _set_moments(optimizer, model, tensors)
    for name, part in (parts or {}).items():
        if not (path / _file_of(name)).is_file():
            raise CheckpointError(f"checkpoint {path} holds no {name}: it was not written by this algorithm")
        stored = safetensors.load_file(path / _file_of(name))
        weights = {key[8:]: value for key, value in stored.items() if key.startswith("weights.")}
        if set(weights) != {key for key, p in part.module.named_parameters() if p.requires_grad}:
            raise CheckpointError(f"the {name} of checkpoint {path} has other weights than this recipe makes")
        _fill(part.module, weights, path)
        _set_moments(part.optimizer, part.module, stored)
    _set_generators(content.pop("rng"))
    return TrainState(**content)


def _set_moments(optimizer: torch.optim.Optimizer, module: Any, tensors: dict[str, Tensor]) -> None:
    for name, parameter in module.named_parameters():
        prefix = f"moments.{name}."
        moments = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
        if moments:
            optimizer.state[parameter] = moments


def _file_of(part: str) -> str:
    return f"{part}.safetensors"


def _moments(optimizer: torch.optim.Optimizer, module: Any) -> dict[str, Tensor]:
    """AdamW's state per parameter, flat and by name: tensors only, so nothing is pickled."""
    names = {id(p): name for name, p in module.named_parameters()}
    return {
        f"moments.{names[id(parameter)]}.{key}": value
        for parameter, moments in optimizer.state.items()
        for key, value in cast("dict[str, Tensor]", moments).items()
    }


def _whole(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.contiguous().clone() for name, value in tensors.items()}


def seed_generators(seed: int) -> None:
    """Start the random generators of Python, numpy and torch, as a new run does."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _generators() -> dict[str, Any]:
    kind, keys, *rest = cast("tuple[Any, ...]", np.random.get_state())
    return {"python": random.getstate(), "numpy": [kind, keys.tolist(), *rest]}


def _set_generators(stored: dict[str, Any]) -> None:
    version, internal, gauss = stored["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, *rest = stored["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))


def _steps(folder: Path) -> list[Path]:
    """Checkpoint folders, newest first; those being written have other names."""
    numbers = {path: int(path.name[5:]) for path in folder.glob("step-*") if path.name[5:].isdecimal()}
    return sorted(numbers, key=numbers.__getitem__, reverse=True)


def _damage(path: Path) -> str:
    """What is wrong with a checkpoint; empty if nothing is."""
    try:
        sums: dict[str, str] = json.loads((path / MANIFEST).read_text())["sha256"]
        names = dict.fromkeys([*FILES, *sums])
        return next((f"{name} does not match its checksum" for name in names if _sha256(path / name) != sums[name]), "")
    except (OSError, ValueError, LookupError, TypeError) as error:
        return f"{type(error).__name__}: {error}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _discard(path: Path) -> None:
    """Remove a folder so that a crash cannot leave a half of it under a name that is read."""
    if path.exists():
        doomed = path.with_name(f".removing-{path.name}")
        path.rename(doomed)
        shutil.rmtree(doomed)

"""Checkpoints: whole or absent, the newest good one is found, all state comes back."""

from __future__ import annotations

import json
import random
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from forkgym.trainers.checkpoint import (
    TrainState,
    find,
    latest,
    load_weights,
    restore,
    save,
    seed_generators,
)
from forkgym.trainers.errors import CheckpointError
from forkgym.trainers.models import load_model
from forkgym.trainers.sections import ModelSection, OptimizerSection
from forkgym.trainers.update import make_optimizer

Made = tuple[Any, torch.optim.Optimizer]


@pytest.fixture
def made() -> Callable[..., Made]:
    def make(seed: int = 0, train_layers: int | None = None) -> Made:
        model = load_model(ModelSection(name="tiny-random", train_layers=train_layers), seed).model
        return model, make_optimizer(model, OptimizerSection(lr=1e-2))

    return make


def one_step(model: Any, optimizer: torch.optim.Optimizer) -> None:
    model(input_ids=torch.randint(0, 200, (1, 5))).logits.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_everything_comes_back(tmp_path: Path, made: Callable[..., Made]) -> None:
    seed_generators(5)
    model, optimizer = made()
    one_step(model, optimizer)
    random.gauss()
    state = TrainState(step=7, cursor=9, elapsed_s=1.5, ledger=["a#0.0"], in_flight=["b#1"], recipe={"seed": 5})
    path = save(tmp_path, state, model, optimizer, keep=2)
    one_step(model, optimizer)
    expected = [random.random(), random.gauss(), np.random.rand(), torch.rand(1).item()]

    seed_generators(99)
    other, other_optimizer = made(seed=1)
    assert restore(path, other, other_optimizer) == state
    one_step(other, other_optimizer)
    assert [random.random(), random.gauss(), np.random.rand(), torch.rand(1).item()] == expected
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_only_trained_weights_are_stored(tmp_path: Path, made: Callable[..., Made]) -> None:
    model, optimizer = made(train_layers=1)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    one_step(model, optimizer)
    path = save(tmp_path, TrainState(), model, optimizer, keep=1)
    fresh, _ = made(train_layers=None)
    load_weights(path, fresh)
    for name, parameter in fresh.named_parameters():
        changed = not torch.equal(parameter, before[name])
        assert changed == (name.startswith("model.layers.1.") or name == "model.norm.weight")


def test_the_newest_are_kept(tmp_path: Path, made: Callable[..., Made]) -> None:
    model, optimizer = made()
    for step in (1, 2, 10):
        save(tmp_path, TrainState(step=step), model, optimizer, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000002", "step-000010"]
    assert latest(tmp_path) == tmp_path / "step-000010"


@pytest.mark.parametrize("name", ["weights.safetensors", "training.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["cut", "gone", "flipped"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, made: Callable[..., Made], name: str, damage: str) -> None:
    model, optimizer = made()
    for step in (1, 2):
        save(tmp_path, TrainState(step=step), model, optimizer, keep=2)
    path = tmp_path / "step-000002" / name
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data[: len(data) // 2] if damage == "cut" else data[:-9] + b"#" + data[-8:])
    assert latest(tmp_path) == tmp_path / "step-000001"
    assert save(tmp_path, TrainState(step=2), model, optimizer, keep=2) == tmp_path / "step-000002"
    assert latest(tmp_path) == tmp_path / "step-000002"


@pytest.mark.parametrize("manifest", ["[]", "null", "{}", '{"sha256": {}}', '{"sha256": []}', ""])
def test_a_manifest_that_vouches_for_nothing_is_damage(
    tmp_path: Path, made: Callable[..., Made], manifest: str
) -> None:
    model, optimizer = made()
    for step in (1, 2):
        save(tmp_path, TrainState(step=step), model, optimizer, keep=2)
    (tmp_path / "step-000002" / "manifest.json").write_text(manifest)
    assert latest(tmp_path) == tmp_path / "step-000001"
    (tmp_path / "step-000001" / "manifest.json").write_text(manifest)
    with pytest.raises(CheckpointError, match="every checkpoint"):
        latest(tmp_path)


def test_a_copy_that_somebody_put_beside_is_neither_read_nor_removed(tmp_path: Path, made: Callable[..., Made]) -> None:
    model, optimizer = made()
    path = save(tmp_path, TrainState(step=1), model, optimizer, keep=1)
    copy = shutil.copytree(path, tmp_path / "step-000001-good")
    assert latest(tmp_path) == path
    for step in (2, 999_999, 1_000_000):
        save(tmp_path, TrainState(step=step), model, optimizer, keep=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-000001-good", "step-1000000"]
    assert find(copy) == copy


def test_a_full_disk_leaves_the_checkpoints_before(tmp_path: Path, made: Callable[..., Made]) -> None:
    model, optimizer = made()
    save(tmp_path, TrainState(step=1), model, optimizer, keep=2)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"step-000002.*those before it are whole"):
            save(tmp_path, TrainState(step=2), model, optimizer, keep=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]
    assert latest(tmp_path) == tmp_path / "step-000001"


def test_finding_one(tmp_path: Path, made: Callable[..., Made]) -> None:
    model, optimizer = made()
    path = save(tmp_path / "checkpoints", TrainState(step=1), model, optimizer, keep=1)
    assert find(tmp_path) == find(tmp_path / "checkpoints") == find(path) == path
    with pytest.raises(CheckpointError, match="no whole checkpoint"):
        find(tmp_path / "elsewhere")
    (path / "state.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"damaged: state\.json does not match"):
        find(path)


def test_another_model_is_refused(tmp_path: Path, made: Callable[..., Made]) -> None:
    model, optimizer = made()
    path = save(tmp_path, TrainState(), model, optimizer, keep=1)
    with pytest.raises(CheckpointError, match="trained other weights"):
        restore(path, *made(train_layers=1))
    with pytest.raises(CheckpointError, match="of another model: 'model"):
        load_weights(path, torch.nn.Linear(2, 2))


def test_another_version_is_refused(tmp_path: Path, made: Callable[..., Made]) -> None:
    model, optimizer = made()
    path = save(tmp_path, TrainState(), model, optimizer, keep=1)
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps(state | {"schema_version": 0}))
    with pytest.raises(CheckpointError, match="another version"):
        restore(path, model, optimizer)

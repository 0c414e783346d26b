"""What samples a trainer's episodes: the recipe's engine, with the trainer's own weights and their version."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from forkgym.agents.base import Episode
from forkgym.agents.loops.oracle import NopAgent
from forkgym.agents.models import SMOLLM2, LanguageModel, load_language_model
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.agents.records import read_episodes
from forkgym.errors import ConfigError, MissingExtraError
from forkgym.trainers import checkpoint, engines, grpo
from forkgym.trainers.engines import open_engine
from forkgym.trainers.player import EnvPlayer
from forkgym.trainers.recipe import GrpoRecipe
from forkgym.trainers.sections import EnvSection
from forkgym.trainers.token_game import TokenGame

MakeRecipe = Callable[..., GrpoRecipe]
INSTALLED = importlib.util.find_spec("vllm") is not None
SMALL: dict[str, Any] = {"name": SMOLLM2, "dtype": "float32", "train_layers": 1}


@pytest.mark.parametrize(
    ("rollout", "message"),
    [
        ({"engine": "endpoint"}, "'hf' or 'vllm'"),
        ({"engine_options": {"enforce_eager": True}}, "are those of vllm"),
        ({"engine": "vllm", "engine_options": {"max_model_len": 9}}, "is set by sampling.context"),
        ({"engine": "vllm"}, "tiny-random has none"),
    ],
)
def test_an_engine_that_cannot_do_it_is_refused(recipe: MakeRecipe, rollout: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        recipe(rollout=rollout)


def test_a_policy_that_takes_no_weights_is_refused() -> None:
    with pytest.raises(ConfigError, match="ScriptedPolicy takes no new weights"):
        EnvPlayer(EnvSection(), NopAgent(), ScriptedPolicy([]))


@pytest.mark.skipif(INSTALLED, reason="vLLM is installed")
def test_without_vllm_the_extra_is_named(recipe: MakeRecipe, tmp_path: Path) -> None:
    setup = recipe(model={"name": str(saved(tmp_path))}, rollout={"engine": "vllm"})
    with pytest.raises(MissingExtraError, match=r"pip install 'forkgym\[vllm\]'"):
        open_engine(setup, load_language_model("tiny-random"))


def test_vllm_starts_from_the_weights_of_the_run(
    recipe: MakeRecipe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Recorder:
        def __init__(self, folder: Path, **options: Any) -> None:
            self.folder, self.options, self.version = folder, options, options["version"]

        def update(self, weights: Mapping[str, torch.Tensor]) -> int:
            self.weights, self.version = dict(weights), self.version + 1
            return self.version

    monkeypatch.setattr(engines, "VLLMPolicy", Recorder)
    setup = recipe(
        model={"name": str(saved(tmp_path)), "dtype": "bfloat16"},
        sampling={"context": 77},
        rollout={"engine": "vllm", "concurrency": 5, "engine_options": {"enforce_eager": True}},
    )
    resumed = load_language_model("tiny-random", seed=9)
    policy: Any = open_engine(setup, resumed, version=4)
    assert (policy.version, policy.folder) == (4, tmp_path / "model")
    assert policy.options == {
        "dtype": "bfloat16",
        "slots": 5,
        "context": 77,
        "version": 3,
        "engine": {"enforce_eager": True},
    }
    assert policy.weights.keys() == resumed.model.state_dict().keys()
    assert all(torch.equal(policy.weights[name], value) for name, value in resumed.model.state_dict().items())


@pytest.mark.skipif(not INSTALLED, reason="vLLM is not installed")
@pytest.mark.filterwarnings("ignore")
def test_two_steps_with_vllm_sample_with_two_versions(recipe: MakeRecipe) -> None:
    setup = recipe(
        model=SMALL,
        optimizer={"lr": 1e-3},
        sampling={"context": 64},
        rollout={"engine": "vllm", "groups": 2, "group_size": 4, "engine_options": {"enforce_eager": True}},
        checkpoint={"every": 1},
        steps=2,
    )

    def odd(job: Any, ids: Any) -> float:
        return sum(id % 2 for id in ids) / len(ids)

    def player(language: LanguageModel) -> TokenGame:
        return TokenGame(language.model, odd, policy=open_engine(setup, language))

    grpo.run(setup, player=player)
    first, second = (list(read(setup, step)) for step in (1, 2))
    assert {versions(episode) for episode in first} == {(0,)}
    assert {versions(episode) for episode in second} == {(1,)}
    model = load_language_model(SMOLLM2).model
    assert max(drift(model, episode) for episode in first) < 1e-3
    assert max(drift(model, episode) for episode in second) > 1e-2
    checkpoint.load_weights(Path(setup.out) / "checkpoints" / "step-000001", model)
    assert max(drift(model, episode) for episode in second) < 1e-3


def saved(folder: Path) -> Path:
    load_language_model("tiny-random").model.save_pretrained(folder / "model")
    return folder / "model"


def read(recipe: GrpoRecipe, step: int) -> list[Episode]:
    return read_episodes(Path(recipe.out) / "episodes" / f"train-{step:06d}.jsonl").episodes


def versions(episode: Episode) -> tuple[int, ...]:
    [segment] = episode.segments
    return tuple(sorted({v for v, made in zip(segment.version, segment.sampled, strict=True) if made}))


def drift(model: Any, episode: Episode) -> float:
    """Largest difference of the recorded log-probabilities from those of a plain forward pass."""
    [segment] = episode.segments
    with torch.no_grad():
        scores = torch.log_softmax(model(input_ids=torch.tensor([segment.ids])).logits[0], -1)
    return max(
        abs(scores[at - 1, segment.ids[at]].item() - segment.logprobs[at])
        for at in range(len(segment.ids))
        if segment.sampled[at]
    )

"""From ``--agent`` and ``--model`` to something that plays."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from forkgym.agents.base import Agent, ChatFormat, Policy
from forkgym.agents.registry import AGENTS, make_agent, make_format, make_policy
from forkgym.cli.output import err
from forkgym.errors import ConfigError, MissingExtraError
from forkgym.registry import resolve

WITHOUT_MODEL = ("oracle", "nop", "random")
CONTEXT = 2048


@dataclass(frozen=True)
class Player:
    """An agent with its policy and chat format, if it has them."""

    agent: Agent
    policy: Policy | None = None
    format: ChatFormat | None = None


@dataclass(frozen=True)
class _Model:
    """What to load: a base model's section, weights over it, and how its agent was set up in training."""

    section: dict[str, Any]
    weights: Path | None = None
    agent: Mapping[str, Any] = field(default_factory=dict[str, Any])
    context: int = CONTEXT


@contextmanager
def player(agent: str, model: str | None, slots: int = 8) -> Generator[Player]:
    """The agent ``agent``, with ``model`` loaded if it needs one. Raises ``ConfigError`` before anything is loaded."""
    if agent in AGENTS and agent in WITHOUT_MODEL:
        if model is not None:
            raise ConfigError(f"agent {agent!r} uses no model; leave --model out or choose --agent bash")
        yield Player(make_agent(agent))
        return
    if agent == "demonstration":
        raise ConfigError("agent 'demonstration' plays for training only; use oracle to check tasks")
    resolve("agent", agent, AGENTS)
    if model is None:
        raise ConfigError(f"agent {agent!r} needs a model: --model smollm2-135m, a model's folder, or a run's folder")
    wanted = _find(model)
    policy, tokenizer = _load(wanted, slots)
    try:
        chat = make_format(wanted.agent.get("format", "chatml"), tokenizer)
        trained_with = wanted.agent.get("name") == agent
        options: Mapping[str, Any] = wanted.agent.get("options", {}) if trained_with else {}
        yield Player(make_agent({"name": agent, **options}, format=chat), policy, chat)
    finally:
        policy.close()


def _find(model: str) -> _Model:
    """A model's name or folder, or the run or checkpoint whose weights are to be used."""
    path = Path(model)
    if not path.is_dir() or (path / "config.json").is_file():
        return _Model({"name": model})
    checkpoint = engine("checkpoint").find(path)
    recipe = json.loads((checkpoint / "state.json").read_text()).get("recipe", {})
    if "model" not in recipe:
        raise ConfigError(f"checkpoint {checkpoint} does not say which model it is of; name a run of `forkgym train`")
    context = recipe.get("sampling", {}).get("context", CONTEXT)
    return _Model({**recipe["model"], "start_from": None}, checkpoint, recipe.get("agent", {}), context)


def _load(wanted: _Model, slots: int) -> tuple[Policy, Any]:
    models, recipe = engine("models"), engine("recipe")
    section = recipe.ModelSection.model_validate(wanted.section)
    with err.status("Loading the model (the first time takes half a minute) …"):
        loaded = models.load_model(section)
        if wanted.weights is not None:
            engine("checkpoint").load_weights(wanted.weights, loaded.model)
        options = {"dtype": models.compute_dtype(section), "slots": slots, "context": wanted.context}
        return make_policy({"name": "hf", "model": loaded.model, **options}), loaded.tokenizer


def engine(module: str) -> Any:
    """A module of the trainers that needs torch. Raises ``MissingExtraError`` without it."""
    try:
        return import_module(f"forkgym.trainers.{module}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("forkgym"):
            raise
        raise MissingExtraError(f"a model needs the package {error.name!r}: pip install 'forkgym[train]'") from error

"""Trainers as Python objects: a recipe made of arguments, with environments and agents that may be live objects."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

from forkgym.agents.base import Agent
from forkgym.agents.models import LanguageModel
from forkgym.envs.core import CodingEnv
from forkgym.errors import ConfigError
from forkgym.trainers import checkpoint, grpo, ppo
from forkgym.trainers.events import OnEvent
from forkgym.trainers.loop import make_player
from forkgym.trainers.metrics import read_metrics
from forkgym.trainers.player import EnvPlayer, Player, Split
from forkgym.trainers.recipe import GrpoRecipe, PpoRecipe
from forkgym.trainers.recipe_file import from_values
from forkgym.trainers.run_folder import Result

MakeEnv = Callable[[], Any]
"""Makes an environment, wrapped or not, over a ``CodingEnv``."""


class Trainer(ABC):
    """One training run.

    - ``env``: an id such as ``"forkgym/SWE-v0"``, the recipe's section ``env`` as a mapping, or a function without
      arguments that makes an environment; its tasks and its reward are then those trained on.
    - ``eval_env``: with a function as ``env``, one that makes the environment of held-out evaluation; without it there
      is none.
    - ``agent``: a name, a dotted path, the section ``agent`` as a mapping, or what makes an agent when called with
      ``format=`` (a chat format; with ``critic.inputs`` also ``privileged=True``), such as a class.
    - ``model``: a name, a folder in the format of transformers, or the section ``model`` as a mapping.
    - ``out``: folder of the run. ``steps``, ``seed`` and all other sections are those of recipes (docs/recipes.md).

    Raises ``ConfigError`` for what a recipe would refuse, with the nearest name, before anything is started.
    """

    algorithm: ClassVar[str]

    def __init__(
        self,
        env: str | Mapping[str, Any] | MakeEnv = "forkgym/SWE-v0",
        *,
        agent: str | Mapping[str, Any] | Callable[..., Agent] = "bash",
        model: str | Mapping[str, Any] = "smollm2-135m",
        out: str | Path,
        steps: int,
        eval_env: MakeEnv | None = None,
        **sections: Any,
    ) -> None:
        self._agent = agent if callable(agent) else None
        self._makers: dict[Split, MakeEnv] = {}
        if callable(env):
            self._makers["train"] = env
            if "reward" in sections:
                raise ConfigError("the reward is that of the environments that your function makes; remove reward")
            if eval_env is None:
                sections.setdefault("eval", {"every": None})
        if eval_env is not None:
            if not self._makers:
                raise ConfigError("eval_env goes with a function as env; with an id, held-out tasks are env.eval_split")
            self._makers["eval"] = eval_env
        values: dict[str, Any] = {
            "algorithm": self.algorithm,
            "env": _env_section(env),
            "agent": {"name": _name(agent)} if callable(agent) else _section(agent, "name"),
            "model": _section(model, "name"),
            "out": str(out),
            "steps": steps,
            **sections,
        }
        self._recipe = cast("GrpoRecipe | PpoRecipe", from_values(values, type(self).__name__))
        if self._makers and "eval" not in self._makers and self._recipe.eval.every is not None:
            raise ConfigError("to evaluate on held-out tasks, give eval_env, which makes environments over them")

    @property
    def recipe(self) -> GrpoRecipe | PpoRecipe:
        """The run as data, defaults filled in."""
        return self._recipe

    def train(self, *, resume: bool = False, on_event: OnEvent | None = None) -> Result:
        """Train to the end, or with ``resume`` go on from the newest checkpoint in ``out``.

        Raises what ``forkgym.trainers.grpo.run`` raises.
        """
        live = self._makers or self._agent is not None
        return self._run(resume, on_event, self._player if live else None)

    def metrics(self) -> list[dict[str, Any]]:
        """The numbers of each step and evaluation so far, in order; ``kind`` is train or eval."""
        return list(read_metrics(Path(self._recipe.out)))

    @abstractmethod
    def _run(
        self, resume: bool, on_event: OnEvent | None, player: Callable[[LanguageModel], Player] | None
    ) -> Result: ...

    def _player(self, language: LanguageModel) -> Player:
        start = checkpoint.latest(Path(self._recipe.out) / "checkpoints")
        version = int(json.loads((start / checkpoint.STATE).read_text())["version"]) if start else 0
        kind = partial(_OwnEnvs, self._makers) if self._makers else EnvPlayer
        return make_player(self._recipe, language, version, own_agent=self._agent, kind=kind)


class GRPOTrainer(Trainer):
    """Multi-turn GRPO and its relatives; see ``Trainer`` for the arguments, ``GrpoRecipe`` for the sections."""

    algorithm = "grpo"

    def _run(self, resume: bool, on_event: OnEvent | None, player: Callable[[LanguageModel], Player] | None) -> Result:
        return grpo.run(cast("GrpoRecipe", self._recipe), resume=resume, on_event=on_event, player=player)


class ActorCriticTrainer(Trainer):
    """Multi-turn PPO with a critic that may know more than the actor; see ``Trainer``, and ``PpoRecipe``."""

    algorithm = "ppo"

    def _run(self, resume: bool, on_event: OnEvent | None, player: Callable[[LanguageModel], Player] | None) -> Result:
        return ppo.run(cast("PpoRecipe", self._recipe), resume=resume, on_event=on_event, player=player)


class _OwnEnvs(EnvPlayer):
    """Episodes in environments that the caller's functions make, by split."""

    def __init__(self, makers: Mapping[Split, MakeEnv], env: Any, agent: Agent, *parts: Any, **options: Any) -> None:
        self._makers = makers
        super().__init__(env, agent, *parts, **options)
        if getattr(agent, "mounts", ()):
            self.close()
            raise ConfigError("this agent mounts its program into the sandbox: give env as an id, not as a function")

    def tasks(self, split: Split) -> list[str]:
        env = self._maker(split)()
        try:
            return list(env.tasks.ids)
        finally:
            env.close()

    def _maker(self, split: Split) -> Callable[[], CodingEnv]:
        return partial(_unwrapped, self._makers[split])


def _unwrapped(make: MakeEnv) -> CodingEnv:
    env = make()
    inner = getattr(env, "unwrapped", env)
    if not isinstance(inner, CodingEnv):
        raise ConfigError(f"{_name(make)} made a {type(env).__name__}; agents play a forkgym CodingEnv")
    return inner


def _env_section(env: str | Mapping[str, Any] | MakeEnv) -> dict[str, Any]:
    """For a function, what the record of the run says in place of an id and a pattern."""
    if callable(env):
        return {"id": _name(env), "tasks": "its own", "split": "its own", "eval_split": "its own"}
    return _section(env, "id")


def _section(value: str | Mapping[str, Any], key: str) -> dict[str, Any]:
    return {key: value} if isinstance(value, str) else dict(value)


def _name(made: Any) -> str:
    made = made.func if isinstance(made, partial) else made
    return f"{getattr(made, '__module__', '')}:{getattr(made, '__qualname__', type(made).__qualname__)}"

"""Where a trainer gets its episodes from: a ``Player``, by default environments, an agent and the model itself.

``EnvPlayer`` is the real one; any object with these methods can stand in, such as a game without a sandbox.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Protocol, runtime_checkable

import gymnasium as gym
from torch import Tensor

from forkgym import tasks
from forkgym.agents.base import Agent, Episode, Policy, SamplingParams
from forkgym.agents.collect import EXTRAS, Collection, Job, collect
from forkgym.agents.ledger import Retries
from forkgym.envs.core import CodingEnv
from forkgym.errors import ConfigError
from forkgym.registry import resolve
from forkgym.trainers.sections import EnvSection

CONNECTION = "forkgym.agents.ray_workers:Connection"
Split = Literal["train", "eval"]


@runtime_checkable
class Syncs(Policy, Protocol):
    """A policy that can be trained: exact ids out, new weights in."""

    @property
    def busy_seconds(self) -> float:
        """Wall seconds so far in which the model computed."""
        ...

    def update(self, weights: Mapping[str, Tensor]) -> int:
        """Sample with these weights, by name, from now on; returns the new version."""
        ...


class Player(Protocol):
    """Plays episodes with the current weights."""

    @property
    def model_seconds(self) -> float:
        """Wall seconds so far in which the model computed."""
        ...

    def tasks(self, split: Split) -> Sequence[str]:
        """Task ids of a split."""
        ...

    def play(
        self,
        split: Split,
        jobs: Sequence[Job],
        sampling: SamplingParams,
        on_episode: Callable[[Episode], None],
        cancel: threading.Event,
    ) -> Collection:
        """As ``forkgym.agents.collect.collect``."""
        ...

    def update(self, weights: Mapping[str, Tensor]) -> None:
        """Sample with these weights from now on."""
        ...

    def close(self) -> None: ...


class EnvPlayer:
    """Episodes in environments of the recipe, with the model as policy, or without one for scripted agents.

    Takes charge of ``policy``. Raises ``ConfigError`` for options that the environment refuses, and for a policy that
    takes no new weights. With ``ray_address`` the environments live in worker processes of that Ray (``auto``: the
    cluster this machine belongs to, ``local``: one started here), and ask ``policy``, which stays in this process.
    """

    def __init__(
        self,
        env: EnvSection,
        agent: Agent,
        policy: Policy | None,
        *,
        reward: str | dict[str, Any] = "resolved",
        concurrency: int = 8,
        retries: Retries = 1,
        max_failed_share: float = 0.5,
        ray_address: str | None = None,
    ) -> None:
        self._env = env
        self._agent = agent
        if policy is not None and not isinstance(policy, Syncs):  # asked before a first step that would be lost
            policy.close()
            raise ConfigError(
                f"{type(policy).__name__} takes no new weights, so nothing can be learnt from what it samples: "
                "use rollout.engine hf or vllm"
            )
        self._policy = policy
        self._reward = reward
        self._options: dict[str, Any] = {
            "concurrency": concurrency,
            "retries": retries,
            "max_failed_share": max_failed_share,
            "on": "threads" if ray_address is None else "ray",
        }
        self._ray: Any = None
        try:
            self._maker("train")().close()
            if ray_address is not None:
                self._ray = resolve("workplace", "ray", {"ray": CONNECTION}, EXTRAS)(ray_address)
        except BaseException:
            self.close()
            raise

    @property
    def model_seconds(self) -> float:
        return self._policy.busy_seconds if self._policy is not None else 0.0

    def tasks(self, split: Split) -> Sequence[str]:
        return tasks.load(self._env.tasks, split=self._split(split)).ids

    def play(
        self,
        split: Split,
        jobs: Sequence[Job],
        sampling: SamplingParams,
        on_episode: Callable[[Episode], None],
        cancel: threading.Event,
    ) -> Collection:
        return collect(
            jobs,
            self._maker(split),
            self._agent,
            self._policy,
            sampling=sampling,
            on_episode=on_episode,
            cancel=cancel,
            **self._options,
        )

    def update(self, weights: Mapping[str, Tensor]) -> None:
        if self._policy is not None:
            self._policy.update(weights)

    def close(self) -> None:
        if self._policy is not None:
            self._policy.close()
        if self._ray is not None:
            self._ray.close()

    def _split(self, split: Split) -> str:
        return self._env.split if split == "train" else self._env.eval_split

    def _maker(self, split: Split) -> Callable[[], CodingEnv]:
        """Makes environments, here or in another process."""
        options = {**self._env.options, "tasks": self._env.tasks, "split": self._split(split), "reward": self._reward}
        return partial(_make, self._env.id, self._agent, options)


def _make(id: str, agent: Agent, options: Mapping[str, Any]) -> CodingEnv:
    given: dict[str, Any] = {"mounts": getattr(agent, "mounts", ()), **options}  # a harness has others in each process
    env: Any = gym.make(id, **given)
    return env.unwrapped

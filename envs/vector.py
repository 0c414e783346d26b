"""Many episodes at once, one thread each.

A step is as slow as its slowest tool call, not as their sum: waiting for a sandbox holds no lock. This is the vector
entry point of every registered id, so ``gym.make_vec("forkgym/SWE-v0", num_envs=4)`` gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from forkgym.envs.core import CodingEnv, StepResult
from forkgym.envs.errors import ResetError
from forkgym.errors import ConfigError
from forkgym.registry import unknown

_NULLABLE = ("reward", "truncated")  # info values that may be None, so their column must hold objects

Seeds = int | Sequence[int | None] | None


class ThreadVectorEnv(VectorEnv[Any, Any, npt.NDArray[Any]]):
    """A vector environment that steps its sub-environments in threads.

    Observations are batched as Gymnasium batches them (text: a tuple of ``num_envs`` strings); actions are a sequence
    of ``num_envs`` actions. ``autoreset_mode``:

    - ``NextStep``: the step after an end ignores the action, resets, and has reward 0. It is no transition.
    - ``SameStep``: the end's observation and info are in ``final_obs`` and ``final_info``; the returned ones are new.
    - ``Disabled``: the caller resets, with ``options={"reset_mask": ...}``.

    An automatic reset that fails is reported like a failed episode: ``info["failure"]`` is set, and the next step tries
    again. Any other error in a sub-environment is raised when all of them have finished their step.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], gym.Env[Any, Any]]],
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:
        super().__init__()
        if not env_fns:
            raise ConfigError("a vector environment needs at least one environment")
        self.autoreset_mode = _mode(autoreset_mode)
        self.envs = [make() for make in env_fns]
        first = self.envs[0]
        self.num_envs = len(self.envs)
        self.metadata = {**first.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = first.render_mode
        self.single_action_space, self.single_observation_space = first.action_space, first.observation_space
        for env in self.envs:
            if (env.action_space, env.observation_space) != (first.action_space, first.observation_space):
                self._close_all()
                raise ConfigError("the sub-environments have different spaces")
        self.action_space = batch_space(first.action_space, self.num_envs)
        self.observation_space = batch_space(first.observation_space, self.num_envs)
        self._pool = ThreadPoolExecutor(self.num_envs, thread_name_prefix="forkgym-env")
        self._observations: list[Any] = [None] * self.num_envs
        self._ended = np.zeros(self.num_envs, dtype=np.bool_)

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset all sub-environments, or those of ``options["reset_mask"]``; sub-environment i gets ``seed + i``."""
        seeds = (
            [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else list(seed or [None] * self.num_envs)
        )
        if len(seeds) != self.num_envs:
            raise ConfigError(f"{len(seeds)} seeds for {self.num_envs} environments")
        options = dict(options or {})
        mask = np.asarray(options.pop("reset_mask", np.ones(self.num_envs, dtype=np.bool_)))
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise ConfigError(f"reset_mask must be {self.num_envs} booleans, at least one of them True")
        chosen = [int(i) for i in np.flatnonzero(mask)]
        results = self._each(lambda i: self.envs[i].reset(seed=seeds[i], options=options or None), chosen)
        infos: dict[str, Any] = {}
        for i, (observation, info) in results.items():
            self._observations[i] = observation
            self._ended[i] = False
            infos = self._add_info(infos, info, i)
        return self._batch(), infos

    def step(
        self, actions: Any
    ) -> tuple[Any, npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]]:
        """One action for each sub-environment; rewards are float64 [num_envs], the flags bool [num_envs]."""
        given = list(iterate(self.action_space, actions))
        if len(given) != self.num_envs:
            raise ConfigError(f"{len(given)} actions for {self.num_envs} environments")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._ended.any():
            raise ConfigError(f"environments {np.flatnonzero(self._ended).tolist()} have ended: reset them first")
        results = self._each(lambda i: self._step_one(i, given[i]), list(range(self.num_envs)))
        rewards = np.zeros(self.num_envs, dtype=np.float64)
        terminations, truncations = np.zeros((2, self.num_envs), dtype=np.bool_)
        infos: dict[str, Any] = {}
        for i, (observation, reward, terminated, truncated, info) in results.items():
            self._observations[i] = observation
            rewards[i], terminations[i], truncations[i] = reward, terminated, truncated
            if self.autoreset_mode is not AutoresetMode.SAME_STEP:
                self._ended[i] = terminated or truncated
            infos = self._add_info(infos, info, i)
        return self._batch(), rewards, terminations, truncations, infos

    def render(self) -> tuple[Any, ...]:
        """Each sub-environment's frame."""
        return tuple(env.render() for env in self.envs)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each sub-environment in its thread, or read an attribute of each."""

        def one(i: int) -> Any:
            found = self.envs[i].get_wrapper_attr(name)
            return found(*args, **kwargs) if callable(found) else found

        return tuple(self._each(one, list(range(self.num_envs))).values())

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of each sub-environment."""
        return self.call(name)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the sub-environments and the threads."""
        self._close_all()
        self._pool.shutdown()

    def _close_all(self) -> None:
        for env in self.envs:
            env.close()

    def _step_one(self, i: int, action: Any) -> StepResult:
        if self._ended[i]:
            observation, info = self._autoreset(i)
            return observation, 0.0, False, "failure" in info, info
        observation, reward, terminated, truncated, info = self.envs[i].step(action)
        if self.autoreset_mode is AutoresetMode.SAME_STEP and (terminated or truncated):
            final = {"final_obs": observation, "final_info": info}
            observation, info = self._autoreset(i)
            info = {**info, **final}
        return observation, float(reward), terminated, truncated, info

    def _autoreset(self, i: int) -> tuple[Any, dict[str, Any]]:
        """Reset, or say that it failed; ``_ended`` makes the next step try again."""
        try:
            observation, info = self.envs[i].reset()
        except ResetError as error:
            self._ended[i] = True
            return {"text": "The environment failed to reset."}, {"failure": {"kind": "sandbox", "reason": str(error)}}
        self._ended[i] = False
        return observation, info

    def _each(self, work: Callable[[int], Any], indices: list[int]) -> dict[int, Any]:
        """``work(i)`` in a thread for each index; all finish before the first error, if any, is raised."""
        futures = {i: self._pool.submit(work, i) for i in indices}
        try:
            errors = [error for future in futures.values() if (error := future.exception()) is not None]
        except KeyboardInterrupt:
            self._close_all()  # ends the commands that the threads wait for
            raise
        if errors:
            raise errors[0]
        return {i: future.result() for i, future in futures.items()}

    def _batch(self) -> Any:
        empty = create_empty_array(self.single_observation_space, n=self.num_envs, fn=np.zeros)
        return concatenate(self.single_observation_space, self._observations, cast("Any", empty))

    def _add_info(self, vector_infos: dict[str, Any], env_info: dict[str, Any], env_num: int) -> dict[str, Any]:
        for key in _NULLABLE:
            if key in env_info and key not in vector_infos:
                vector_infos[key] = np.full(self.num_envs, None, dtype=object)
        return super()._add_info(vector_infos, env_info, env_num)


def make_thread_vector(
    num_envs: int = 1, autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP, **options: Any
) -> ThreadVectorEnv:
    """``num_envs`` environments with the same options, in threads: what ``gymnasium.make_vec`` calls."""
    first = CodingEnv(**options)
    rest: dict[str, Any] = {**options, "tasks": first.tasks, "split": None}
    return ThreadVectorEnv([lambda: first, *[lambda: CodingEnv(**rest)] * (num_envs - 1)], autoreset_mode)


def _mode(mode: str | AutoresetMode) -> AutoresetMode:
    try:
        return AutoresetMode(mode)
    except ValueError:
        raise ConfigError(unknown("autoreset mode", mode, [known.value for known in AutoresetMode])) from None

"""The contract of an environment as runnable checks, for ours and for anybody's.

    check("forkgym/SWE-v0", tasks="swe/tiny/*")        or   check(lambda: MyEnv(...))

Each rule makes a fresh environment, and raises ``ConformanceError`` whose message starts with the rule's name.
The rules from ``seeds_matter`` on apply to a ``CodingEnv`` and pass for any other environment.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence

import forkgym
from forkgym.envs.base import Malformed
from forkgym.envs.core import CodingEnv

Factory = Callable[[], gym.Env[Any, Any]]

NOT_ACTIONS: tuple[Any, ...] = (
    None,
    "ls",
    b"ls",
    7,
    [],
    {},
    {"tool": "bash"},
    {"tool": "no such tool", "arguments": {}},
    {"tool": "bash", "arguments": None},
    {"tool": "bash", "arguments": {"command": 1}},
    {"tool": "bash", "arguments": {"command": "ls", "timeout": float("nan")}},
    {"tool": "bash", "arguments": {"command": "ls", "colour": "red"}},
    {"tool": "bash", "arguments": {"command": "\ud800"}},
    Malformed("found no command"),
)
_SAMPLES = 50
_SEED = 7


class ConformanceError(AssertionError):
    """An environment breaks a rule of the contract."""


def check(env: str | Factory, **options: Any) -> None:
    """Run every rule. ``env`` is an id for ``gymnasium.make`` with ``options``, or a function that makes one."""
    for rule in RULES:
        run(rule, env, **options)


def run(rule: Callable[[Factory], None], env: str | Factory, **options: Any) -> None:
    """Run one rule, with warnings as errors."""
    factory: Factory = (lambda: gym.make(env, **options)) if isinstance(env, str) else env
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            rule(factory)
        except ConformanceError:
            raise
        except Exception as error:
            raise ConformanceError(f"{rule.__name__}: {type(error).__name__}: {error}") from error


def registered_ids() -> list[str]:
    """Every id that this package registers."""
    return sorted(forkgym.ENV_IDS)


def gymnasium_checker(factory: Factory) -> None:
    """Gymnasium's own ``check_env`` finds nothing, not even to warn about."""
    with factory() as env:
        check_env(env.unwrapped)


def spaces_contain(factory: Factory) -> None:
    """Sampled actions lie in the action space and survive JSON; every observation lies in its space."""
    with factory() as env:
        env.action_space.seed(_SEED)
        for _ in range(_SAMPLES):
            action = env.action_space.sample()
            _hold("spaces_contain", env.action_space.contains(action), f"sample {action!r} is outside its space")
        observation, _ = env.reset(seed=_SEED)
        for _ in range(5):
            _hold(
                "spaces_contain", env.observation_space.contains(observation), f"{observation!r} is outside its space"
            )
            json.dumps(observation)
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                observation, _ = env.reset()


def seed_fixes_everything(factory: Factory) -> None:
    """One seed, one first observation, one info and one effect of the same actions: again, and in a second environment.

    Gymnasium's checker only compares what follows the first seed; an environment that counts its resets passes there.
    """
    with factory() as first, factory() as second:
        first.action_space.seed(_SEED)
        actions = [first.action_space.sample() for _ in range(3)]
        runs = [_play(env, actions) for env in (first, first, second)]
        for other in runs[1:]:
            _hold(
                "seed_fixes_everything", data_equivalence(runs[0], other, exact=True), f"{runs[0]!r} became {other!r}"
            )


def samples_follow_the_seed(factory: Factory) -> None:
    """A seeded action space draws the same actions again."""
    with factory() as env:
        env.action_space.seed(_SEED)
        first = [env.action_space.sample() for _ in range(5)]
        env.action_space.seed(_SEED)
        _hold("samples_follow_the_seed", first == [env.action_space.sample() for _ in range(5)], "samples differ")


def malformed_actions_are_answered(factory: Factory) -> None:
    """Nonsense is answered with an observation; it neither raises nor ends the episode by itself."""
    with factory() as env:
        env.reset(seed=_SEED)
        for action in NOT_ACTIONS:
            _hold(
                "malformed_actions_are_answered", not env.action_space.contains(action), f"{action!r} is in the space"
            )
            observation, reward, terminated, truncated, _ = env.step(action)
            inside = env.observation_space.contains(observation)
            _hold("malformed_actions_are_answered", inside and reward == 0.0 and not terminated, f"after {action!r}")
            if truncated:
                env.reset()


def end_is_final(factory: Factory) -> None:
    """Before the first reset and after the end, ``step`` raises Gymnasium's ``ResetNeeded``; reset goes on."""
    with factory() as env:
        _raises_reset_needed(env.unwrapped, "before the first reset")
        env.reset(seed=_SEED)
        _finish(env)
        _raises_reset_needed(env, "after the end")
        env.reset()
        env.step(env.action_space.sample())


def close_is_idempotent(factory: Factory) -> None:
    """Closing twice, before a reset and after one, does nothing more."""
    env = factory()
    env.close()
    env.close()
    env = factory()
    env.reset(seed=_SEED)
    env.close()
    env.close()


def seeds_are_visible(factory: Factory) -> None:
    """``info`` names the task and the seed, so that any episode can be played again."""
    with factory() as env:
        _, info = env.reset(seed=_SEED)
        _hold("seeds_are_visible", info.get("seed") == _SEED and isinstance(info.get("task"), str), f"info is {info!r}")
        json.dumps(info)


def seeds_matter(factory: Factory) -> None:
    """Different seeds draw different tasks, where there is more than one."""
    with factory() as wrapped:
        env = _coding(wrapped)
        if env is None or len(env.tasks) < 2:
            return
        drawn = {env.reset(seed=seed)[1]["task"] for seed in range(16)}
        _hold("seeds_matter", len(drawn) > 1, f"16 seeds all drew {drawn}: the seed is dropped")


def forks_are_independent(factory: Factory) -> None:
    """Forks have the parent's turn and files, and no later change of one is seen by another or by the parent."""
    with factory() as wrapped:
        env = _coding(wrapped)
        if env is None:
            return
        env.reset(seed=_SEED)
        _run(env, "echo parent > fork.txt")
        branches = env.fork(2)
        try:
            for name, branch in zip(("a", "b"), branches, strict=True):
                info = _run(branch, f"echo {name} >> fork.txt")
                _hold("forks_are_independent", info["turn"] == 2, f"the fork is at turn {info['turn']}, not 2")
                _hold("forks_are_independent", len(branch.lineage) == 1, "the fork has no lineage")
            texts = [_read(each) for each in (env, *branches)]
            _hold("forks_are_independent", texts == ["parent\n", "parent\na\n", "parent\nb\n"], f"files are {texts}")
        finally:
            for branch in branches:
                branch.close()
        _run(env, "true")


def snapshots_return(factory: Factory) -> None:
    """``restore`` brings back the files, the turn and the generator of ``snapshot``."""
    with factory() as wrapped:
        env = _coding(wrapped)
        if env is None:
            return
        env.reset(seed=_SEED)
        _run(env, "echo before > fork.txt")
        saved, draw = env.snapshot(), env.np_random.random()
        _run(env, "echo after > fork.txt")
        env.restore(saved)
        _hold("snapshots_return", _read(env) == "before\n", "the files are not those of the snapshot")
        _hold("snapshots_return", env.np_random.random() == draw, "the generator is not that of the snapshot")
        _hold("snapshots_return", _run(env, "true")["turn"] == 2, "the turn is not that of the snapshot")


def grading_leaves_no_trace(factory: Factory) -> None:
    """``grade`` and ``privileged`` may be called at any turn; the agent's machine and observations do not show it."""
    with factory() as wrapped:
        env = _coding(wrapped)
        if env is None:
            return
        observations: list[list[str]] = []
        for peek in (False, True):
            observation, _ = env.reset(seed=_SEED)
            seen = [observation["text"]]
            for command in ("find . -type f | sort", "env | sort", "ls -A / /tmp"):
                if peek:
                    env.grade()
                    env.privileged()
                seen.append(env.step({"tool": "bash", "arguments": {"command": command}})[0]["text"])
            observations.append(seen)
        _hold("grading_leaves_no_trace", observations[0] == observations[1], "observations differ after privileged()")
        leaked = [path for path in env.task.hidden if any(path in text for text in observations[1])]
        _hold("grading_leaves_no_trace", not leaked, f"hidden files are visible: {leaked}")


RULES: tuple[Callable[[Factory], None], ...] = (
    gymnasium_checker,
    spaces_contain,
    seed_fixes_everything,
    samples_follow_the_seed,
    malformed_actions_are_answered,
    end_is_final,
    close_is_idempotent,
    seeds_are_visible,
    seeds_matter,
    forks_are_independent,
    snapshots_return,
    grading_leaves_no_trace,
)


def _hold(rule: str, holds: bool, otherwise: str) -> None:
    if not holds:
        raise ConformanceError(f"{rule}: {otherwise}")


def _play(env: gym.Env[Any, Any], actions: list[Any]) -> list[Any]:
    result = list(env.reset(seed=_SEED))
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        result.append([observation, float(reward), terminated, truncated, info])
        if terminated or truncated:
            break
    return result


def _finish(env: gym.Env[Any, Any]) -> None:
    """Play on until the end, at most as long as any sensible limit."""
    submit: Any = {"tool": "submit", "arguments": {}}
    for _ in range(1000):
        action = submit if env.action_space.contains(submit) else env.action_space.sample()
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            return
    raise ConformanceError("end_is_final: no end within 1000 steps")


def _raises_reset_needed(env: gym.Env[Any, Any], when: str) -> None:
    try:
        env.step(env.action_space.sample())
    except ResetNeeded:
        return
    raise ConformanceError(f"end_is_final: step {when} did not raise ResetNeeded")


def _coding(env: gym.Env[Any, Any]) -> CodingEnv | None:
    return env.unwrapped if isinstance(env.unwrapped, CodingEnv) else None


def _run(env: CodingEnv, command: str) -> dict[str, Any]:
    return env.step({"tool": "bash", "arguments": {"command": command}})[4]


def _read(env: CodingEnv) -> str:
    return env.box.read_file(f"{env.task.workdir}/fork.txt").decode()

"""Grades saved episodes again: after a grader was mended, a test corrected, or with another reward.

A record that holds its submission is graded as it is. One that does not is first acted again, and counts only if
nothing came out otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from forkgym.agents.base import Episode
from forkgym.agents.errors import ReplayError
from forkgym.agents.replay import replay
from forkgym.envs import rewards
from forkgym.envs.base import Call, Evidence, RewardFunction
from forkgym.envs.errors import ResetError
from forkgym.envs.world import World
from forkgym.errors import ConfigError
from forkgym.sandboxes.errors import SandboxError
from forkgym.tasks.base import Verdict
from forkgym.tasks.errors import GradingError
from forkgym.tasks.loader import Spec
from forkgym.tasks.submission import digest, from_json, to_json

NOT_CALLS = "Not a valid action"


@dataclass(frozen=True)
class Rescored:
    """``after`` is the episode with its new verdict and reward, ``before`` itself where ``how`` is ``left``.

    ``why`` says why it was left: not an error of the episode, but nothing was learnt about it.
    """

    before: Episode
    after: Episode
    how: Literal["submission", "replay", "left"]
    why: str = ""

    @property
    def changed(self) -> bool:
        """True if the reward is another one."""
        return self.before.reward != self.after.reward


class Rescorer:
    """Grades episodes of ``tasks`` again, with ``reward`` as ``CodingEnv`` takes it. Safe to call from many threads.

    ``options`` are those of ``CodingEnv`` that the episodes were played with; they matter where one has to be replayed.
    """

    def __init__(
        self,
        tasks: Spec,
        *,
        sandbox: str = "local",
        reward: str | RewardFunction | Mapping[str, Any] = "resolved",
        **options: Any,
    ) -> None:
        self._world = World(tasks, None, sandbox, options.get("limits"))
        self._reward = rewards.build(reward)
        self._options: dict[str, Any] = {**options, "sandbox": sandbox, "reward": reward}

    def __call__(self, episode: Episode) -> Rescored:
        """The episode graded again. Raises ``ConfigError`` for a task that is not there.

        An episode that came to its end and then failed, mostly in the grader, is scored now; others are left.
        """
        if episode.status == "cancelled":
            return Rescored(episode, episode, "left", "it was cancelled")
        if not episode.task:
            why = f"it belongs to no task, so nothing says what it is worth (it was recorded by {episode.harness!r})"
            return Rescored(episode, episode, "left", why)
        if episode.status == "failed" and (episode.submission is None or episode.ending is None):
            return Rescored(
                episode, episode, "left", f"it failed ({episode.reason}) before there was anything to grade"
            )
        try:
            task = self._world.task(episode.task)
            if episode.submission is None:
                return self._replayed(episode)
            submission = from_json(episode.submission)
            verdict = self._world.grade(task, submission)
            evidence = Evidence(verdict, task, submission, _calls(episode))
            after = _updated(episode, verdict, *rewards.apply(self._reward, evidence))
            return Rescored(episode, after, "submission")
        except (SandboxError, GradingError, ReplayError, ResetError) as error:
            return Rescored(episode, episode, "left", f"{type(error).__name__}: {error}")

    def _replayed(self, episode: Episode) -> Rescored:
        try:
            again = replay(episode, self._world.tasks, **self._options)
        except ConfigError as error:
            return Rescored(episode, episode, "left", str(error))
        end, parted = again.outcome, again.divergence
        if parted is not None and parted.what != "verdict":
            where = f"at turn {parted.turn} ({parted.what})"
            return Rescored(episode, episode, "left", f"it holds no submission, and its replay differs {where}")
        if end is None or end.verdict is None or end.reward is None or end.submission is None:
            return Rescored(episode, episode, "left", "it holds no submission, and its replay came to no end")
        kept = replace(episode, submission=to_json(end.submission), tree=digest(end.submission))
        return Rescored(episode, _updated(kept, end.verdict, end.reward, end.reward_parts), "replay")


def _updated(episode: Episode, verdict: Verdict, reward: float, parts: Mapping[str, float]) -> Episode:
    metrics = {name: value for name, value in episode.metrics.items() if not name.startswith("reward/")}
    metrics |= {f"reward/{name}": part for name, part in parts.items()}
    if episode.status == "failed" and episode.ending is not None:
        status, reason = episode.ending
        episode = replace(episode, status=status, reason=reason, detail="", ending=None, permanent=False)
    return replace(episode, verdict=verdict.as_dict(), reward=reward, metrics=metrics)


def _calls(episode: Episode) -> tuple[Call, ...]:
    """The tool calls that were run, as a reward may look at them."""
    return tuple(
        Call(step.action["tool"], step.action["arguments"], step.observation)
        for step in episode.steps
        if "tool" in step.action and not step.observation.startswith(NOT_CALLS)
    )

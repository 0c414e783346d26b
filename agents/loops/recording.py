"""How an episode ends, in one place: every way out of a loop becomes a typed status."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from forkgym.agents.base import Episode
from forkgym.agents.errors import HarnessError, PolicyError
from forkgym.envs.base import FailureKind, Malformed, ToolCall
from forkgym.envs.core import CodingEnv
from forkgym.envs.errors import ResetError, is_permanent
from forkgym.envs.spaces import ToolCalls
from forkgym.errors import ConfigError
from forkgym.sandboxes.errors import SandboxError
from forkgym.tasks.errors import GradingError
from forkgym.tasks.submission import digest, to_json

MAX_SUBMISSION_CHARS = 1 << 20

_KINDS: tuple[tuple[tuple[type[Exception], ...], FailureKind], ...] = (
    ((SandboxError, ResetError), "sandbox"),
    ((PolicyError,), "engine"),
    ((GradingError,), "grader"),
)


class Cancelled(Exception):  # not an error: somebody asked for it
    """The policy was told to stop in the middle of an episode."""


def failure_kind(error: Exception) -> FailureKind:
    """Which part of the infrastructure an exception comes from; what no other part raised is the harness's."""
    for types, kind in _KINDS:
        if isinstance(error, types):
            return kind
    return "harness"


def timed_step(env: CodingEnv, action: ToolCall | Malformed) -> tuple[str, float, float]:
    """One step: observation text, reward, wall seconds."""
    start = time.perf_counter()
    observation, reward, *_ = env.step(action)
    return observation["text"], float(reward), time.perf_counter() - start


def described(env: CodingEnv, action: ToolCall | Malformed) -> Mapping[str, Any]:
    """An action as a record holds it: the call, with arguments typed as its tool asks for, or what was wrong."""
    if isinstance(action, Malformed):
        return {"malformed": action.message}
    return {**(env.action_space.typed(action) if isinstance(env.action_space, ToolCalls) else action)}


def fail(episode: Episode, error: Exception) -> None:
    """The episode failed for a reason that is not the agent's: it has no reward."""
    episode.status, episode.reason = "failed", failure_kind(error)
    episode.detail = f"{type(error).__name__}: {error}"
    episode.permanent = is_permanent(error)
    episode.reward = None


def cancel(episode: Episode, detail: str) -> None:
    """The episode was stopped from outside: it has no reward."""
    episode.status, episode.reason, episode.detail = "cancelled", "cancelled", detail
    episode.reward = None


def finish(episode: Episode, env: CodingEnv) -> None:
    """Take over how ``env`` ended the episode: status, reason, verdict, submission, the reward if it was scored."""
    outcome = env.outcome
    if outcome is None:
        raise HarnessError("the loop stopped before the environment ended the episode")
    episode.status, episode.reason, episode.detail = outcome.status, outcome.reason, outcome.detail
    episode.verdict = None if outcome.verdict is None else outcome.verdict.as_dict()
    episode.reward = outcome.reward
    if outcome.submission is not None:
        text = to_json(outcome.submission)
        episode.submission = text if len(text) <= MAX_SUBMISSION_CHARS else None
        episode.tree = digest(outcome.submission)
    episode.ending = outcome.ending
    for step, tree in zip(episode.steps, env.trees, strict=False):  # the last step may have none
        step.tree = tree
    episode.metrics |= {f"reward/{name}": value for name, value in outcome.reward_parts.items()}


@contextmanager
def recording(episode: Episode) -> Generator[Episode]:
    """Record an exception in the body as the end of ``episode``. ``ConfigError`` escapes: that is the caller's mistake.

    Adds to ``metrics``: ``turns``, ``sampled_tokens``, ``prompt_tokens``, and wall seconds: ``seconds`` in all,
    ``policy_seconds`` and ``env_seconds`` within the steps.
    """
    start = time.perf_counter()
    try:
        yield episode
    except (KeyboardInterrupt, Cancelled) as error:
        cancel(episode, str(error) or type(error).__name__)
    except ConfigError:
        raise
    except Exception as error:
        fail(episode, error)
    finally:
        episode.metrics.update(_measure(episode), seconds=time.perf_counter() - start)


def _measure(episode: Episode) -> dict[str, float]:
    sampled = sum(sum(segment.sampled) for segment in episode.segments)
    tokens = sum(len(segment.ids) for segment in episode.segments)
    return {
        "turns": float(len(episode.steps)),
        "sampled_tokens": float(sampled),
        "prompt_tokens": float(tokens - sampled),
        "policy_seconds": sum(step.policy_seconds for step in episode.steps),
        "env_seconds": sum(step.seconds for step in episode.steps),
    }

"""Acts a recorded episode again in a fresh sandbox, and says where the two part.

What depends on the clock, on process ids or on chance is told apart only by ``ignore``: it masks text in both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from forkgym.agents.base import Episode, Step
from forkgym.agents.errors import ReplayError
from forkgym.envs.base import Malformed, ToolCall, TruncationReason
from forkgym.envs.core import LOST, CodingEnv
from forkgym.envs.episode import Outcome
from forkgym.envs.text import cap
from forkgym.errors import ConfigError
from forkgym.tasks.loader import Spec
from forkgym.tasks.submission import digest

A_DAY = 86400.0
MASK = "…"


@dataclass(frozen=True)
class Divergence:
    """The first difference: at turn ``turn`` (0-based), in its observation, in the files after it, or in the end.

    ``verdict``: all of that is the same, and was judged otherwise.
    """

    turn: int
    what: Literal["observation", "files", "end", "verdict"]
    recorded: str
    replayed: str


@dataclass(frozen=True)
class Replay:
    """``steps`` were acted again. ``outcome`` is the new end, ``None`` if there was none.

    ``task_changed``: the task is not the one that the record was graded with.
    """

    episode: str
    steps: int
    divergence: Divergence | None
    outcome: Outcome | None = None
    task_changed: bool = False

    @property
    def identical(self) -> bool:
        """True if nothing that the record holds came out otherwise."""
        return self.divergence is None


def actionless(episode: Episode) -> str:
    """Why an episode cannot be acted again; empty if it can: its steps are actions of the environment."""
    if not episode.task:
        return f"it belongs to no task (it was recorded by {episode.harness!r})"
    for step in episode.steps:
        match step.action:
            case {"tool": str(), "arguments": dict()} | {"malformed": str()}:
                continue
            case _:
                return (
                    f"turn {step.turn} is no action of the environment (it was played by {episode.harness!r}); "
                    "rescore works from what was submitted"
                )
    return ""


def replay(episode: Episode, tasks: Spec, *, ignore: Sequence[str] = (), **options: Any) -> Replay:
    """Reset to the episode's task and seed, act its steps, and compare observations, files and the end.

    Stops at the first difference. ``ignore`` are regular expressions: what they match is equal to anything they match.
    ``options`` are those of ``CodingEnv`` that the episode was played with; its limits are those of the record.

    Raises ``ConfigError`` for an episode that holds no actions and for a wrong expression, ``ReplayError`` if the
    machine fails, ``ResetError`` if it cannot begin.
    """
    masks = [_compiled(pattern) for pattern in ignore]
    if why := actionless(episode):
        raise ConfigError(f"episode {episode.id!r} cannot be acted again: {why}")
    actions = [_action(step) for step in episode.steps]
    watch = any(step.tree for step in episode.steps)
    limits: dict[str, Any] = {"max_turns": len(actions) + 1, "max_seconds": A_DAY, "max_tokens": 1 << 60}
    settings: dict[str, Any] = {**options, **limits, "tree_digests": watch}
    env = CodingEnv(tasks, **settings)
    try:
        env.reset(seed=episode.seed, options={"task": episode.task})
        changed = _digest(episode) not in (None, env.task.digest)
        for turn, (step, action) in enumerate(zip(episode.steps, actions, strict=True)):
            found = _step(env, turn, step, action, masks, last=turn + 1 == len(actions))
            if found is not None:
                return Replay(episode.id, turn + 1, found, env.outcome, changed)
        return Replay(episode.id, len(actions), _end(env, episode), env.outcome, changed)
    finally:
        env.close()


def _step(
    env: CodingEnv, turn: int, step: Step, action: ToolCall | Malformed, masks: Sequence[re.Pattern[str]], *, last: bool
) -> Divergence | None:
    text = env.step(action)[0]["text"]
    outcome = env.outcome
    if outcome is not None and outcome.status == "failed":
        raise ReplayError(f"turn {turn}: the {outcome.reason} failed during the replay: {outcome.detail}")
    if not step.observation.startswith(LOST) and not _same(step.observation, text, masks):
        return Divergence(turn, "observation", step.observation, text)
    if step.tree and step.tree != env.trees[-1]:
        return Divergence(turn, "files", step.tree, env.trees[-1])
    if outcome is not None and not last:
        return Divergence(turn, "end", "the episode went on", f"{outcome.status} ({outcome.reason})")
    return None


def _end(env: CodingEnv, episode: Episode) -> Divergence | None:
    """Bring the replay to the end that was recorded, and compare what was submitted and what it was worth."""
    if episode.status not in ("finished", "truncated"):
        return None
    turn = max(0, len(episode.steps) - 1)
    recorded = f"{episode.status} ({episode.reason})"
    if env.outcome is None and episode.status == "truncated" and episode.reason in get_args(TruncationReason):
        env.truncate(cast("TruncationReason", episode.reason))
    outcome = env.outcome
    if outcome is None:
        return Divergence(turn, "end", recorded, "the episode did not end")
    if outcome.status == "failed":
        raise ReplayError(f"the {outcome.reason} failed at the end of the replay: {outcome.detail}")
    if outcome.status != episode.status:
        return Divergence(turn, "end", recorded, f"{outcome.status} ({outcome.reason})")
    tree = "" if outcome.submission is None else digest(outcome.submission)
    if episode.tree and episode.tree != tree:
        return Divergence(turn, "files", episode.tree, tree)
    verdict = {} if outcome.verdict is None else outcome.verdict.as_dict()
    before, now = (_judgement(values) for values in (episode.verdict or {}, verdict))
    return None if before == now else Divergence(turn, "verdict", before, now)


def _judgement(verdict: Mapping[str, Any]) -> str:
    return f"{verdict.get('stage')}, score {verdict.get('score')}"


def _digest(episode: Episode) -> str | None:
    verdict: Mapping[str, Any] = episode.verdict or {}
    return verdict.get("provenance", {}).get("digest")


def _same(recorded: str, text: str, masks: Sequence[re.Pattern[str]]) -> bool:
    """Equal once masked; an agent may have shown less of an observation than the environment gave it."""
    shown = cap(text, len(recorded)) if "characters cut ...]" in recorded else text
    for mask in masks:
        recorded, shown = mask.sub(MASK, recorded), mask.sub(MASK, shown)
    return recorded == shown


def _action(step: Step) -> ToolCall | Malformed:
    if "malformed" in step.action:
        return Malformed(step.action["malformed"])
    return {"tool": step.action["tool"], "arguments": dict(step.action["arguments"])}


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{pattern!r} is no regular expression: {error}") from error

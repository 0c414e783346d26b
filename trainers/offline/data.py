"""Logged episodes as training data: read, checked against the tokenizer, filtered, paired."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from forkgym.agents.base import Episode
from forkgym.agents.models import load_language_model, model_folder
from forkgym.agents.records import read_episodes
from forkgym.agents.tokenizers import Tokenizer, load_tokenizer
from forkgym.errors import ConfigError
from forkgym.trainers.batch import keep_trainable
from forkgym.trainers.kinds import TruncatedRule
from forkgym.trainers.offline.sections import PairSection
from forkgym.trainers.plan import seed_of

_PROBE = "def f(x):\n    return {'a': x[0] + 1}  # naïve <|im_end|>\n"


@dataclass(frozen=True)
class Pair:
    """Two episodes of one prompt; ``chosen`` has the higher reward."""

    chosen: Episode
    rejected: Episode

    @property
    def key(self) -> str:
        return f"{self.chosen.id} > {self.rejected.id}"


def logged_episodes(runs: Sequence[str], tokenizer: Tokenizer, truncated: TruncatedRule = "score") -> list[Episode]:
    """All episodes of ``runs`` that may be trained on, in order; what failed or was cancelled is left out.

    Ids and groups get the number of their run in front, so that those of two runs stay apart. Raises ``ConfigError``
    if there is none, or if ids are not those of ``tokenizer``.
    """
    found: list[Episode] = []
    for number, run in enumerate(runs):
        path = Path(run)
        _check_recorded_model(path, tokenizer)
        episodes = [episode for file in _files(path) for episode in read_episodes(file).episodes]
        kept = keep_trainable(episodes, truncated).episodes
        check_ids(kept, tokenizer, run)
        found += [replace(e, id=f"{number}:{e.id}", group=f"{number}:{e.group}") for e in kept]
    if twice := _repeated(episode.id for episode in found):
        run, _, name = twice.partition(":")
        raise ConfigError(f"{runs[int(run)]} holds two scored episodes {name!r}; name one of its files instead")
    if not found:
        raise ConfigError(f"data.runs: {', '.join(runs)} hold no episode that was scored, so there is nothing to learn")
    return found


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = sorted((path / "episodes").glob("train-[0-9]*.jsonl"))
    if not found and (path / "episodes.jsonl").is_file():
        found = [path / "episodes.jsonl"]
    if not found:
        raise ConfigError(
            f"data.runs: {path} has neither episodes/train-*.jsonl nor episodes.jsonl; "
            "name a run folder, an evaluation's --out, or a file of episodes"
        )
    return found


def _repeated(ids: Iterable[str]) -> str | None:
    seen = set[str]()
    for name in ids:
        if name in seen:
            return name
        seen.add(name)
    return None


def _check_recorded_model(path: Path, tokenizer: Tokenizer) -> None:
    """A run folder says which model sampled; its tokenizer must be ours."""
    recipe = path / "recipe.json"
    if recipe.is_file():
        name: str = json.loads(recipe.read_text())["model"]["name"]
        if difference := tokenizers_differ(tokenizer, tokenizer_of(name)):
            raise ConfigError(f"data.runs: {path} was sampled by {name}, whose tokenizer is another one: {difference}")


def tokenizer_of(model: str) -> Tokenizer:
    """The tokenizer of a model's name or folder."""
    return load_language_model(model).tokenizer if model == "tiny-random" else load_tokenizer(model_folder(model))


def tokenizers_differ(ours: Tokenizer, theirs: Tokenizer) -> str:
    """In what two tokenizers differ: size, a single id's text, or how they cut a text; empty if in nothing."""
    if ours.size != theirs.size:
        return f"{ours.size} ids here, {theirs.size} there"
    wrong = next((i for i in range(ours.size) if ours.decode([i]) != theirs.decode([i])), None)
    if wrong is not None:
        return f"id {wrong} is {ours.decode([wrong])!r} here, {theirs.decode([wrong])!r} there"
    return "" if ours.encode(_PROBE) == theirs.encode(_PROBE) else "they cut the same text into different ids"


def check_ids(episodes: Sequence[Episode], tokenizer: Tokenizer, where: str) -> None:
    """Raise ``ConfigError`` for an id that ``tokenizer`` has not, or if no turn's ids spell the text recorded for it.
    Records of texts that an agent rewrote may differ in some turns; ids of another tokenizer differ in all."""
    texts = matches = 0
    for episode in episodes:
        for segment in episode.segments:
            largest = max(segment.ids, default=0)
            if largest >= tokenizer.size:
                raise ConfigError(
                    f"{where}: episode {episode.id!r} has the id {largest}, but the model's tokenizer has "
                    f"{tokenizer.size} ids; these episodes were sampled with another tokenizer"
                )
        for step in episode.steps:
            if text := step.text.strip():
                texts += 1
                matches += text in tokenizer.decode(sampled_ids(episode, step.turn))
    if texts and not matches:
        raise ConfigError(
            f"{where}: none of {texts} recorded texts is what the model's tokenizer makes of their ids; "
            "these episodes were sampled with another tokenizer"
        )


def sampled_ids(episode: Episode, turn: int) -> list[int]:
    """What the policy sampled in one turn."""
    return [
        id
        for segment in episode.segments
        for id, was, of in zip(segment.ids, segment.sampled, segment.turn, strict=True)
        if was and of == turn
    ]


def best_of(episodes: Sequence[Episode], min_reward: float | None, per_task: int | None, seed: int) -> list[Episode]:
    """Rejection sampling: episodes with at least ``min_reward``, no two alike token by token, at most ``per_task`` of
    each task, drawn by ``seed``."""
    kept: dict[str, dict[Any, Episode]] = {}
    for episode in episodes:
        if min_reward is None or (episode.reward or 0.0) >= min_reward:
            kept.setdefault(episode.task, {}).setdefault(_tokens(episode), episode)
    chosen: list[Episode] = []
    for task, found in kept.items():
        different = list(found.values())
        random.Random(seed_of(seed, "rejection", task)).shuffle(different)
        chosen += different[:per_task]
    return chosen


def preference_pairs(episodes: Sequence[Episode], section: PairSection, seed: int) -> list[Pair]:
    """Pairs of scored ``episodes`` by ``section``: one group or task, one prompt, rewards that differ by more than
    the margin. Raises ``ConfigError`` if there is none."""
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(episode.group if section.within == "group" else episode.task, []).append(episode)
    pairs: list[Pair] = []
    for name, members in groups.items():
        found = [
            Pair(*sorted(two, key=lambda e: -(e.reward or 0.0)))
            for two in combinations(members, 2)
            if abs((two[0].reward or 0.0) - (two[1].reward or 0.0)) > section.margin
            and two[0].task == two[1].task
            and _opening(two[0]) == _opening(two[1])
        ]
        random.Random(seed_of(seed, "pairs", name)).shuffle(found)
        pairs += found[: section.per_group]
    if not pairs:
        raise ConfigError(
            f"no pair among {len(episodes)} episodes in {len(groups)} {section.within}s: within one, prompts must be "
            f"the same and rewards differ by more than {section.margin:g}; log more episodes or set pairs.within=task"
        )
    return pairs


def _tokens(episode: Episode) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(segment.ids) for segment in episode.segments)


def _opening(episode: Episode) -> list[int]:
    """The ids before the first sampled one: the prompt."""
    first = next(segment for segment in episode.segments if any(segment.sampled))
    return first.ids[: first.sampled.index(True)]

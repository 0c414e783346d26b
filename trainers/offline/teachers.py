"""Who judges a student's tokens: other models, by task, or the student itself, told the verdict."""

from __future__ import annotations

import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from forkgym.agents.base import ChatFormat, Episode, Segment
from forkgym.agents.models import LanguageModel, load_language_model
from forkgym.errors import ConfigError
from forkgym.trainers import checkpoint
from forkgym.trainers.base import Batch
from forkgym.trainers.batch import build_batch
from forkgym.trainers.errors import TrainerError
from forkgym.trainers.objectives import require_finite
from forkgym.trainers.offline.data import tokenizers_differ
from forkgym.trainers.offline.sections import SelfTeacherSection, TeacherSection
from forkgym.trainers.update import Scorer


class Judge(ABC):
    """Gives log-probabilities of the student's tokens."""

    @abstractmethod
    def judge(self, batch: Batch, episodes: list[Episode], scorer: Scorer) -> Tensor:
        """The teacher's log-probability of each trained token of ``batch``, whose members are ``episodes``:
        float32 [B, T], 0 where nothing is trained. ``scorer`` is the student's."""

    def learned(self, model: Any) -> None:
        """The student ``model`` has made the updates of a step."""
        return


@dataclass(frozen=True)
class Teacher:
    """A loaded model and where it teaches."""

    section: TeacherSection
    model: Any


class Faculty(Judge):
    """Several teachers: in each task, the mean of their log-probabilities by weight."""

    def __init__(self, teachers: Sequence[Teacher]) -> None:
        self._teachers = teachers

    def check(self, tasks: Sequence[str]) -> None:
        """Raise ``ConfigError`` for a task without a teacher, or a teacher without a task."""
        for task in tasks:
            if not any(fnmatchcase(task, teacher.section.tasks) for teacher in self._teachers):
                raise ConfigError(f"teachers: none of them teaches in the task {task!r}; add one, or narrow env.tasks")
        for teacher in self._teachers:
            if not any(fnmatchcase(task, teacher.section.tasks) for task in tasks):
                raise ConfigError(f"teachers: no training task matches {teacher.section.tasks!r}; remove this teacher")

    def judge(self, batch: Batch, episodes: list[Episode], scorer: Scorer) -> Tensor:
        """See ``Judge``."""
        matches = [[fnmatchcase(e.task, t.section.tasks) for e in episodes] for t in self._teachers]
        share = torch.tensor(matches, dtype=torch.float32).reshape(len(self._teachers), len(episodes))
        share *= torch.tensor([teacher.section.weight for teacher in self._teachers])[:, None]
        share /= share.sum(0)
        result = torch.zeros(batch.mask.shape)
        for teacher, weights in zip(self._teachers, share, strict=True):
            rows = (weights[batch.member] > 0).nonzero()[:, 0]
            if rows.numel():
                logp = replace(scorer, model=teacher.model).whole(batch, rows)
                result += weights[batch.member][:, None] * logp
        _check_finite(result, batch)
        return result


def load_teachers(sections: Sequence[TeacherSection], student: LanguageModel) -> Faculty:
    """Load each teacher. Raises ``ConfigError`` for one of another tokenizer than the student's."""
    teachers: list[Teacher] = []
    for section in sections:
        loaded = load_language_model(section.model)
        if difference := tokenizers_differ(student.tokenizer, loaded.tokenizer):
            raise ConfigError(
                f"teacher {section.model} has another tokenizer than the student ({difference}), so it has no "
                "probabilities of the student's tokens; choose a teacher of the same family"
            )
        if section.start_from is not None:
            checkpoint.load_weights(checkpoint.find(Path(section.start_from)), loaded.model)
        loaded.model.requires_grad_(False)
        teachers.append(Teacher(section, loaded.model))
    return Faculty(teachers)


class Hindsight(Judge):
    """The student's own model, whose context begins with a message that holds the episode's verdict.

    ``model`` is the teacher's: a frozen or averaged copy of the student.
    """

    def __init__(self, section: SelfTeacherSection, format: ChatFormat, model: Any) -> None:
        self._section, self._format, self.model = section, format, model

    def judge(self, batch: Batch, episodes: list[Episode], scorer: Scorer) -> Tensor:
        """See ``Judge``. The sampled tokens of both contexts are compared id by id before anything is computed."""
        told = build_batch([self.told(episode) for episode in episodes])
        if not torch.equal(told.ids[told.mask], batch.ids[batch.mask]) or not torch.equal(told.member, batch.member):
            raise TrainerError("the teacher's sampled tokens are not the student's; this is a fault of ForkGym")
        result = torch.zeros(batch.mask.shape)
        result[batch.mask] = replace(scorer, model=self.model).whole(told)[told.mask]
        _check_finite(result, batch)
        return result

    def told(self, episode: Episode) -> Episode:
        """``episode`` with the message in front of each segment; nothing else changes."""
        place, message = message_ids(self._format, verdict_text(self._section, episode))
        return replace(episode, segments=[_inserted(segment, place, message) for segment in episode.segments])

    def learned(self, model: Any) -> None:
        """Move the average, if there is one."""
        if self._section.weights == "ema":
            decay = 0.95 if self._section.decay is None else self._section.decay
            with torch.no_grad():
                for mine, new in zip(self.model.parameters(), model.parameters(), strict=True):
                    mine.lerp_(new, 1 - decay)


def frozen_copy(model: Any) -> Any:
    """A copy of a model that no gradient reaches."""
    result = copy.deepcopy(model)
    result.requires_grad_(False)
    return result


def verdict_text(section: SelfTeacherSection, episode: Episode) -> str:
    """What the teacher is told of a scored episode."""
    known = {"reward": episode.reward, "status": episode.status, "reason": episode.reason}
    told = {name: value for name, value in (episode.verdict or {}).items() if name != "provenance"}
    text = json.dumps({**known, **told}, sort_keys=True, default=str)
    return section.template.replace("{verdict}", text[: section.max_chars])


def message_ids(format: ChatFormat, text: str) -> tuple[list[int], list[int]]:
    """What a format writes before its first message, and a user message alone.

    The message is what a conversation of twice the message has more than one of it. Raises ``ConfigError`` if that is
    not one piece.
    """
    message = {"role": "user", "content": text}
    one, two = format.start([message]), format.start([message, message])
    size = len(two) - len(one)
    for start in range(len(one)):
        if two[:start] != one[:start]:
            break
        if two[start + size :] == one[start:] and two[start : start + size] == one[start : start + size]:
            return one[:start], two[start : start + size]
    raise ConfigError(
        f"the chat format {format.name!r} does not write a message as one piece, so no verdict can be put before an "
        "episode: choose another agent.format, such as chatml"
    )


def _inserted(segment: Segment, place: list[int], message: list[int]) -> Segment:
    """``segment`` with ``message`` after ``place``, if it begins so; else in front. Only observed tokens are added."""
    at = len(place) if segment.ids[: len(place)] == place and not any(segment.sampled[: len(place)]) else 0
    size = len(message)
    return Segment(
        ids=[*segment.ids[:at], *message, *segment.ids[at:]],
        sampled=[*segment.sampled[:at], *[False] * size, *segment.sampled[at:]],
        logprobs=[*segment.logprobs[:at], *[0.0] * size, *segment.logprobs[at:]],
        version=[*segment.version[:at], *[-1] * size, *segment.version[at:]],
        turn=[*segment.turn[:at], *[0] * size, *segment.turn[at:]],
    )


def _check_finite(logp: Tensor, batch: Batch) -> None:
    members = batch.member.repeat_interleave(batch.mask.sum(1))
    require_finite(logp[batch.mask], members, batch.episodes, "log-probability by the teacher")

"""A library of what made kernels faster: short texts, admitted only after their gain was measured again.

A skill's evidence is a kernel of a training task. It is graded anew ``repeats`` times, and every grade must be correct,
honest and faster. ``find`` ranks by BM25; ``as_prompt`` puts what was found before a task's instruction.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from forkgym.tasks.base import Submission, Task, Verdict
from forkgym.tasks.errors import GradingError, TaskFormatError
from forkgym.tasks.grading import judge
from forkgym.tasks.workspace import Bases

LEAST_GAIN = 1.1
REPEATS = 3
_K1, _B = 1.5, 0.75
_MAX_TEXT = 2000


@dataclass(frozen=True)
class Skill:
    """``when`` says in what situation, ``advice`` what to do. ``gain``: the least low end of the measured speed-ups."""

    when: str
    advice: str
    task: str
    digest: str
    gain: float
    measured: int


class SkillLibrary:
    """Skills in a file of JSON lines, one process at a time. Raises ``TaskFormatError`` if the file is no such file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._skills: list[Skill] = []
        if path.exists():
            self._skills = [self._read(number, line) for number, line in enumerate(path.read_text().splitlines(), 1)]

    def _read(self, number: int, line: str) -> Skill:
        try:
            return Skill(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise TaskFormatError(f"{self.path}, line {number}: this is no skill: {error}") from error

    @property
    def skills(self) -> tuple[Skill, ...]:
        """All that were admitted, the oldest first."""
        return tuple(self._skills)

    def offer(
        self, when: str, advice: str, task: Task, work: Submission, bases: Bases, repeats: int = REPEATS
    ) -> tuple[Skill | None, str]:
        """Admit a skill if ``work`` on ``task`` proves it. Returns it, or ``None`` and why not.

        Raises ``ValueError`` for an empty or overlong text or a task that is not for training (what is learnt from it
        would tell the answer to it), and ``GradingError`` if the machine failed.
        """
        if not when.strip() or not advice.strip() or len(when) + len(advice) > _MAX_TEXT:
            raise ValueError(f"a skill has a situation and advice, of at most {_MAX_TEXT} characters together")
        if task.split != "train":
            raise ValueError(f"{task.id} is a task of the split {task.split!r}; skills come from training tasks only")
        if repeats < 2:
            raise ValueError("a gain is reproduced by at least 2 measurements")
        if any(known.advice == advice and known.when == when for known in self._skills):
            return None, "it is known already"
        gains: list[float] = []
        for _ in range(repeats):
            gain, problem = _gain(task, judge(task, work, bases.box))
            if problem:
                return None, f"measurement {len(gains) + 1} of {repeats}: {problem}"
            gains.append(gain)
        skill = Skill(when, advice, task.id, task.digest, round(min(gains), 4), repeats)
        self._append(skill)
        return skill, ""

    def _append(self, skill: Skill) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(asdict(skill)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._skills.append(skill)

    def find(self, query: str, most: int = 3) -> list[Skill]:
        """The skills whose texts share the rarest words with the query, best first; none that shares no word."""
        scores = bm25(query, [f"{skill.when} {skill.advice}" for skill in self._skills])
        ranked = sorted(zip(scores, self._skills, strict=True), key=lambda pair: (-pair[0], -pair[1].gain))
        return [skill for score, skill in ranked[:most] if score > 0]

    def as_prompt(self, task: Task, most: int = 3) -> str:
        """What was learnt elsewhere and may help with this task; empty if nothing fits. Never what came from itself."""
        others = [skill for skill in self.find(task.instruction, len(self._skills)) if skill.digest != task.digest]
        lines = [
            f"- {skill.when}: {skill.advice} (measured: {skill.gain:.2f} times as fast)" for skill in others[:most]
        ]
        return "\n".join(["What made other kernels faster:", *lines]) if lines else ""


def _gain(task: Task, verdict: Verdict) -> tuple[float, str]:
    """The low end of the speed-up, or what speaks against it. Raises ``GradingError`` if there is no verdict."""
    if verdict.score is None:
        raise GradingError(f"{task.id}: the gain could not be measured: {verdict.error}")
    if verdict.hacks:
        return 0.0, f"it is dishonest: {verdict.hacks[0]}"
    gain = verdict.components.get("ci_low", 0.0)
    if verdict.components.get("correct") != 1.0:
        return 0.0, f"it is wrong ({verdict.stage})"
    return gain, "" if gain >= LEAST_GAIN else f"it is only {gain:.3f} times as fast, {LEAST_GAIN:g} is asked for"


def bm25(query: str, texts: Sequence[str]) -> list[float]:
    """Okapi BM25 of each text for the query: k1 = 1.5, b = 0.75, weights of words never below 0."""
    documents = [Counter(_words(text)) for text in texts]
    if not documents:
        return []
    mean = sum(document.total() for document in documents) / len(documents) or 1.0
    scores = [0.0] * len(documents)
    for word in set(_words(query)):
        holding = sum(word in document for document in documents)
        weight = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
        for number, document in enumerate(documents):
            often = document[word]
            scores[number] += weight * often * (_K1 + 1) / (often + _K1 * (1 - _B + _B * document.total() / mean))
    return scores


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())

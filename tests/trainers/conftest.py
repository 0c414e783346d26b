"""Episodes for trainer tests, written token by token."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from forkgym.agents.base import Completion, Episode, SamplingParams, Segment, Status, Step
from forkgym.agents.collect import Collection, Job
from forkgym.agents.policies.hf import HFPolicy

MakeEpisode = Callable[..., Episode]


@pytest.fixture
def make_episode() -> MakeEpisode:
    """Build an episode; each segment is a list of (observed ids, sampled ids) turns, every sampled logprob -1."""

    def make(
        id: str,
        segments: list[list[tuple[list[int], list[int]]]],
        *,
        reward: float | None = 1.0,
        group: str = "g",
        status: Status = "finished",
        reason: str = "",
    ) -> Episode:
        episode = Episode(id, "task", group, "test", 0, status=status, reason=reason, reward=reward)
        for turns in segments:
            segment = Segment()
            for turn, (observed, sampled) in enumerate(turns):
                segment.append_prompt(observed, turn)
                segment.append_completion(Completion(tuple(sampled), (-1.0,) * len(sampled), "stop", 3), turn)
            episode.segments.append(segment)
        return episode

    return make


class TokenGame:
    """A player without a sandbox: the model samples three tokens; the reward is the share of ids below 64.

    Real sampling and real weights; a few steps of training must raise the reward. ``fail`` names the units that fail.
    """

    def __init__(self, model: Any, tasks: Sequence[str] = ("a", "b", "c"), fail: Callable[[Job], bool] | None = None):
        self.policy = HFPolicy(model, dtype=torch.float32, slots=4, context=64)
        self.played: list[Job] = []
        self.closed = False
        self._tasks = tasks
        self._fail = fail or (lambda job: False)

    def tasks(self, split: str) -> Sequence[str]:
        return self._tasks if split == "train" else self._tasks[:2]

    def play(
        self,
        split: str,
        jobs: Sequence[Job],
        sampling: SamplingParams,
        on_episode: Callable[[Episode], None],
        cancel: threading.Event,
    ) -> Collection:
        collection = Collection()
        for job in jobs:
            episode = self._cancelled(job) if cancel.is_set() else self._episode(job, sampling)
            collection.episodes.append(episode)
            if episode.status != "cancelled":
                self.played.append(job)
                on_episode(episode)
        return collection

    def update(self, weights: Mapping[str, Any]) -> None:
        self.policy.update(weights)

    def close(self) -> None:
        self.closed = True
        self.policy.close()

    def _cancelled(self, job: Job) -> Episode:
        return Episode(job.id, job.task, job.group, "game", job.seed, "cancelled", "cancelled")

    def _episode(self, job: Job, sampling: SamplingParams) -> Episode:
        if self._fail(job):
            return Episode(job.id, job.task, job.group, "game", job.seed, "failed", "sandbox")
        segment = Segment()
        segment.append_prompt([job.task.encode()[0]], 0)
        params = replace(sampling, max_tokens=3, seed=job.seed)
        [completion] = self.policy.generate([segment.ids], params)
        segment.append_completion(completion, 0)
        reward = sum(id < 64 for id in completion.ids) / 3
        step = Step(0, "", {}, "", reward, 0.0, 0.001)
        verdict = {"score": reward, "resolved": reward == 1.0}
        return Episode(
            job.id,
            job.task,
            job.group,
            "game",
            job.seed,
            "finished",
            "submitted",
            steps=[step],
            segments=[segment],
            verdict=verdict,
            reward=reward,
        )


@pytest.fixture
def token_game() -> type[TokenGame]:
    return TokenGame

"""A ``Player`` without environments or sandboxes: a game of three tokens, for tests and dry runs of a trainer.

Sampling, log-probabilities and weights are real; only the world is small. A policy that learns raises the reward
within a dozen steps of the ``tiny-random`` model.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from forkgym.agents.base import Episode, SamplingParams, Segment, Step
from forkgym.agents.collect import Collection, Job
from forkgym.agents.policies.hf import HFPolicy
from forkgym.trainers.player import Split, Syncs

TOKENS = 3
Rule = Callable[[Job, Sequence[int]], float | None]


def low_ids(job: Job, ids: Sequence[int]) -> float:
    """The default rule: the share of sampled ids below 64."""
    return sum(id < 64 for id in ids) / len(ids)


class TokenGame:
    """Each episode samples ``TOKENS`` ids after the first byte of its task's name; ``rule`` gives the reward.

    ``None`` from the rule is an episode that infrastructure failed. ``tells`` is what a critic may know of a job.
    ``policy`` samples instead of the built-in engine.
    ``played`` lists the jobs in order. Episodes run one after the other, so a run is repeatable bit for bit.
    """

    def __init__(
        self,
        model: Any,
        rule: Rule = low_ids,
        tasks: Sequence[str] = ("a", "b", "c"),
        tells: Callable[[Job], Mapping[str, Any]] | None = None,
        policy: Syncs | None = None,
    ) -> None:
        self.played: list[Job] = []
        self.closed = False
        self._policy = policy or HFPolicy(model, dtype=torch.float32, slots=1, context=16)
        self._rule = rule
        self._tasks = tasks
        self._tells = tells

    def tasks(self, split: Split) -> Sequence[str]:
        """All tasks to train on, the first two to evaluate."""
        return self._tasks if split == "train" else self._tasks[:2]

    def play(
        self,
        split: Split,
        jobs: Sequence[Job],
        sampling: SamplingParams,
        on_episode: Callable[[Episode], None],
        cancel: threading.Event,
    ) -> Collection:
        """One episode per job; those after ``cancel`` is set are cancelled."""
        collection = Collection()
        for job in jobs:
            episode = Episode(job.id, job.task, job.group, "token-game", job.seed, "cancelled", "cancelled")
            if not cancel.is_set():
                self._play(episode, job, sampling)
                self.played.append(job)
                on_episode(episode)
            collection.episodes.append(episode)
        return collection

    @property
    def model_seconds(self) -> float:
        return self._policy.busy_seconds

    def update(self, weights: Mapping[str, Tensor]) -> None:
        """Sample with these weights from now on."""
        self._policy.update(weights)

    def close(self) -> None:
        """Stop the engine."""
        self.closed = True
        self._policy.close()

    def _play(self, episode: Episode, job: Job, sampling: SamplingParams) -> None:
        segment = Segment()
        segment.append_prompt([job.task.encode()[0]], 0)
        [completion] = self._policy.generate([segment.ids], replace(sampling, max_tokens=TOKENS, seed=job.seed))
        segment.append_completion(completion, 0)
        episode.segments.append(segment)
        episode.sampling = sampling.shaping
        episode.privileged = [] if self._tells is None else [self._tells(job)]
        episode.steps.append(Step(0, "", {}, "", 0.0, 0.0))
        episode.reward = self._rule(job, completion.ids)
        if episode.reward is None:
            episode.status, episode.reason = "failed", "sandbox"
            return
        episode.status, episode.reason = "finished", "submitted"
        episode.verdict = {"score": episode.reward, "resolved": episode.reward == 1.0}
        episode.metrics["reward/score"] = episode.reward

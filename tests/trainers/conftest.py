"""Episodes for trainer tests, written token by token."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forkgym.agents.base import Completion, Episode, Segment, Status

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

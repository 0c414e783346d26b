"""E11: a retry is a new episode. The failed attempt is kept beside it, and both are complete when they are read."""

from __future__ import annotations

import threading
from collections import defaultdict
from pathlib import Path

from forkgym.agents.base import Episode, SamplingParams
from forkgym.agents.collect import Job, collect
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.loops.bash import BashAgent
from forkgym.agents.policies.scripted import Call, ScriptedPolicy
from forkgym.agents.records import EpisodeWriter, read_episodes
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.envs.core import CodingEnv

LOOK = "```bash\nls\n```"
SUBMIT = "```bash\nsubmit\n```"
JOBS = 12


def test_calls_of_a_crashed_attempt_stay_out_of_the_retry(tmp_path: Path) -> None:
    """Each job's first attempt crashes in its third call; its second attempt makes three calls and submits."""
    third_calls: defaultdict[int | None, int] = defaultdict(int)
    lock = threading.Lock()

    def script(call: Call) -> str | Exception:
        if call.turn < 2:
            return LOOK
        with lock:
            third_calls[call.params.seed] += 1
            return RuntimeError("engine crashed") if third_calls[call.params.seed] == 1 else SUBMIT

    path = tmp_path / "episodes.jsonl"
    with EpisodeWriter(path) as writer:

        def keep(episode: Episode) -> None:
            writer.write(episode)
            assert read_episodes(path).episodes[-1].steps == episode.steps  # whole as soon as it is written

        run = collect(
            [Job("swe/tiny/clamp/upper-bound", seed=i, group="g", id=f"e{i}") for i in range(JOBS)],
            lambda: CodingEnv("swe/tiny/clamp/*"),
            BashAgent(ChatML(ByteTokenizer())),
            ScriptedPolicy(script),
            sampling=SamplingParams(),
            concurrency=4,
            max_failed_share=1.0,
            on_episode=keep,
        )
    assert [e.id for e in run.episodes] == [f"e{i}.retry1" for i in range(JOBS)]
    assert [[s.text for s in e.steps] for e in run.episodes] == [[LOOK, LOOK, SUBMIT]] * JOBS
    assert {e.id: ([s.text for s in e.steps], e.reason) for e in run.retried} == {
        f"e{i}": ([LOOK, LOOK], "engine") for i in range(JOBS)
    }
    sampled = len(LOOK) + 1
    assert {sum(e.segments[0].sampled) for e in run.retried} == {2 * sampled}
    assert {sum(e.segments[0].sampled) for e in run.episodes} == {2 * sampled + len(SUBMIT) + 1}
    assert len(read_episodes(path).episodes) == 2 * JOBS

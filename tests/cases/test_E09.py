"""E09: an engine that gives text without token ids is refused before any trainer sees the episode."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from forkgym.agents.base import Completion, Episode, SamplingParams, Segment, Step
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.loops.bash import BashAgent
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.agents.records import decode_episode, encode_episode
from forkgym.agents.summary import summarize
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.envs.core import CodingEnv
from forkgym.errors import ConfigError


def test_completion_without_ids_fails_the_episode() -> None:
    policy = ScriptedPolicy([Completion((), (), "stop")])
    with closing(CodingEnv("swe/tiny/clamp/*")) as env:
        episode = BashAgent(ChatML(ByteTokenizer())).run(
            env,
            policy,
            task="swe/tiny/clamp/upper-bound",
            seed=0,
            sampling=SamplingParams(),
            episode="e",
            group="g",
        )
    assert (episode.status, episode.reason, episode.reward) == ("failed", "engine", None)
    assert "no token ids" in episode.detail
    assert summarize([episode]).reason == {"failed(engine)": 1}


def test_ids_without_logprobs_are_no_completion() -> None:
    with pytest.raises(ValueError, match="2 ids but 0 logprobs"):
        Completion((1, 2), (), "stop")


def test_record_with_text_but_no_ids_is_refused() -> None:
    step = Step(0, "```bash\nls\n```", {"tool": "bash", "arguments": {"command": "ls"}}, "", 0.0, 0.1)
    episode = Episode("e", "t", "g", "other", 0, "finished", reward=1.0, steps=[step], segments=[Segment()])
    with pytest.raises(ValueError, match=r"turns \[0\] have text but no sampled token ids"):
        encode_episode(episode)
    segment = Segment([5], [True], [-1.0], [0], [0])
    row = json.loads(encode_episode(Episode("e", "t", "g", "other", 0, "finished", steps=[step], segments=[segment])))
    row["segments"][0] = {name: [] for name in row["segments"][0]}
    with pytest.raises(ConfigError, match="no sampled token ids"):
        decode_episode(json.dumps(row))

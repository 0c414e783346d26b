"""A trainer's episodes in worker processes of Ray: the tokens of threads, with the version that sampled them."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from typing import Any

import pytest
import torch

from forkgym.agents.base import Episode, SamplingParams
from forkgym.agents.collect import Job
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.loops.bash import BashAgent
from forkgym.agents.models import load_language_model
from forkgym.agents.policies.hf import HFPolicy
from forkgym.errors import ConfigError
from forkgym.trainers.player import EnvPlayer
from forkgym.trainers.sections import EnvSection

ray: Any = pytest.importorskip("ray", reason="Ray is not installed: pip install 'forkgym[ray]'")
SAMPLING = SamplingParams(max_tokens=4)


def player(address: str | None) -> EnvPlayer:
    language = load_language_model("tiny-random")
    policy = HFPolicy(language.model, dtype=torch.float32, slots=1, context=2048, tokenizer=language.tokenizer)
    env = EnvSection(options={"max_turns": 1})
    return EnvPlayer(env, BashAgent(ChatML(language.tokenizer)), policy, concurrency=2, ray_address=address)


def two_steps(address: str | None) -> list[Episode]:
    other = load_language_model("tiny-random", seed=1).model.state_dict()
    source, found = player(address), list[Episode]()
    try:
        task = source.tasks("train")[0]
        for step in range(2):
            jobs = [Job(task, seed, "g", f"s{step}.{seed}") for seed in range(2)]
            found += source.play("train", jobs, SAMPLING, lambda episode: None, threading.Event()).episodes
            source.update(other)
    finally:
        source.close()
    return found


def test_episodes_are_those_of_threads_and_new_weights_are_used_at_once() -> None:
    here, there = two_steps(None), two_steps("local")
    assert not ray.is_initialized()
    assert [(e.id, e.status, e.reward) for e in there] == [(e.id, e.status, e.reward) for e in here]
    plain = [[replace(s, logprobs=[]) for s in e.segments] for e in there]
    assert plain == [[replace(s, logprobs=[]) for s in e.segments] for e in here]
    versions = [{v for s in e.segments for v in s.version if v >= 0} for e in there]
    assert versions == [{0}, {0}, {1}, {1}]


def test_no_ray_at_an_address_is_an_error_at_once() -> None:
    with pytest.raises(ConfigError, match="no Ray answers at 'auto'"):
        player("auto")


def test_a_ray_that_is_connected_is_not_taken_for_another_one() -> None:
    with (
        contextlib.closing(player("local")),
        pytest.raises(ConfigError, match=r"not to 10\.0\.0\.7:6379: call ray\.shutdown"),
    ):
        player("10.0.0.7:6379")

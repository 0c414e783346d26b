from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from forkgym.agents.base import Episode, SamplingParams
from forkgym.agents.errors import ReplayError
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.loops.bash import BashAgent
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.agents.records import decode_episode, encode_episode
from forkgym.agents.replay import replay
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.errors import ConfigError
from forkgym.sandboxes.errors import ImageError

FIX = "```bash\nsed -i '5s/x/high/' clamp.py && echo done\n```"
SUBMIT = "```bash\nsubmit\n```"


def play(env: Any, texts: list[str], actions: str = "bash", **options: Any) -> Episode:
    """An episode as a file gives it back."""
    agent = BashAgent(ChatML(ByteTokenizer()), system=None, actions=actions, **options)
    sampling = SamplingParams(max_tokens=900)
    record = agent.run(env, ScriptedPolicy(texts), task="test/clamp", seed=3, sampling=sampling, episode="e", group="g")
    return decode_episode(encode_episode(record))


def changed(episode: Episode, turn: int, **values: Any) -> Episode:
    """The episode with other values in one step."""
    steps = [dataclasses.replace(s, **values) if s.turn == turn else s for s in episode.steps]
    return dataclasses.replace(episode, steps=steps)


def test_an_episode_with_a_malformed_turn_comes_out_as_recorded(make_env, make_task) -> None:
    episode = play(
        make_env(), ["no command", "```bash\nexport A=7; cd /tmp\n```", "```bash\necho $A $PWD\n```", SUBMIT]
    )
    assert [step.observation for step in episode.steps][2] == "7 /tmp\n"
    result = replay(episode, [make_task()])
    assert (result.identical, result.steps, result.task_changed) == (True, 4, False)
    assert result.outcome is not None
    assert result.outcome.status == "finished"


def test_the_first_other_observation_is_reported_with_both_texts(make_env, make_task) -> None:
    episode = play(make_env(), [FIX, "```bash\ncat clamp.py | wc -l\n```", SUBMIT])
    found = replay(changed(episode, 1, observation="7\n"), [make_task()]).divergence
    assert found is not None
    assert (found.turn, found.what, found.recorded, found.replayed) == (1, "observation", "7\n", "6\n")


def test_clock_and_chance_differ_unless_they_are_masked(make_env, make_task) -> None:
    noisy = "```bash\necho at $(date +%s%N) by $(tr -dc a-f </dev/urandom | head -c 20).\n```"
    episode = play(make_env(), [noisy, SUBMIT])
    assert not replay(episode, [make_task()]).identical
    assert not replay(episode, [make_task()], ignore=[r"at \d+"]).identical
    assert replay(episode, [make_task()], ignore=[r"at \d+", r"[a-f]{20}"]).identical


def test_files_that_come_out_otherwise_are_seen_at_their_turn_or_at_the_end(make_env, make_task) -> None:
    silent = "```bash\nhead -c 9 /dev/urandom >noise.bin\n```"
    watched = play(make_env(tree_digests=True), ["```bash\nls\n```", silent, SUBMIT])
    assert watched.steps[0].tree != watched.steps[1].tree == watched.steps[2].tree == watched.tree
    found = replay(watched, [make_task()]).divergence
    assert found is not None
    assert (found.turn, found.what) == (1, "files")
    blind = play(make_env(), ["```bash\nls\n```", silent, SUBMIT])
    assert {step.tree for step in blind.steps} == {""}
    found = replay(blind, [make_task()]).divergence
    assert found is not None
    assert (found.turn, found.what) == (2, "files")


@pytest.mark.parametrize("turns", [1, 2])
def test_an_episode_that_ran_out_of_turns_ends_so_again(make_env, make_task, turns: int) -> None:
    episode = play(make_env(max_turns=turns), [FIX, "```bash\nls\n```"])
    assert (episode.status, episode.reason, episode.reward) == ("truncated", "turns", 1.0)
    result = replay(episode, [make_task()])
    assert result.identical
    assert result.outcome is not None
    assert (result.outcome.status, result.outcome.reason) == ("truncated", "turns")


def test_another_judgement_is_not_another_episode(make_env, make_task) -> None:
    """The task's hidden tests ask for something else since: all is the same but the verdict."""
    episode = play(make_env(), [FIX, SUBMIT])
    harder = dataclasses.replace(make_task(), hidden={"test_clamp.py": b"import nothing_like_this\n"})
    result = replay(episode, [harder])
    assert result.task_changed
    assert result.divergence is not None
    assert result.divergence.what == "verdict"
    assert (result.divergence.recorded, result.divergence.replayed) == ("resolved, score 1.0", "unresolved, score 0.0")


def test_an_end_that_comes_otherwise_is_reported(make_env, make_task) -> None:
    episode = play(make_env(), [FIX, SUBMIT])
    short = dataclasses.replace(episode, steps=episode.steps[:1])
    found = replay(short, [make_task()]).divergence
    assert found is not None
    assert (found.what, found.recorded, found.replayed) == ("end", "finished (submitted)", "the episode did not end")


def test_observations_that_the_agent_cut_are_compared_as_it_saw_them(make_env, make_task) -> None:
    episode = play(make_env(), ["```bash\nseq 500\n```", SUBMIT], observation_chars=200)
    assert len(episode.steps[0].observation) == 200
    assert replay(episode, [make_task()]).identical
    other = changed(episode, 0, observation=episode.steps[0].observation.replace("500", "501"))
    assert not replay(other, [make_task()]).identical


def test_arguments_of_a_format_without_types_are_acted_as_they_were_understood(make_env, make_task) -> None:
    view = "<function=view>\n<parameter=path>\nclamp.py\n</parameter>\n<parameter=first>\n5\n</parameter>\n</function>"
    episode = play(make_env(), [view, "<function=submit>\n</function>"], actions="xml")
    assert episode.steps[0].action == {"tool": "view", "arguments": {"path": "clamp.py", "first": 5}}
    assert replay(episode, [make_task()]).identical


def test_what_cannot_be_replayed_is_refused(make_env, make_task) -> None:
    episode = play(make_env(), [SUBMIT])
    foreign = changed(episode, 0, action={"command": "ls"})
    with pytest.raises(ConfigError, match=r"turn 0 is no action of the environment \(it was played by 'bash'\)"):
        replay(foreign, [make_task()])
    with pytest.raises(ConfigError, match="'\\(' is no regular expression"):
        replay(episode, [make_task()], ignore=["("])
    with pytest.raises(ConfigError, match="test/clamp"):
        replay(episode, [make_task("other")])


def test_a_broken_machine_says_nothing_about_the_episode(make_env, make_task) -> None:
    episode = play(make_env(), [FIX, SUBMIT])

    def broken(evidence: Any) -> float:
        raise ImageError("gone")

    with pytest.raises(ReplayError, match=r"turn 1: the sandbox failed during the replay: ImageError: gone"):
        replay(episode, [make_task()], reward=broken)

from __future__ import annotations

import json
from typing import Any

import pytest

from forkgym.agents.base import Completion, Episode, Policy, SamplingParams
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.loops.bash import SYSTEM, BashAgent
from forkgym.agents.loops.sampling import turn_seed
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.agents.records import decode_episode, encode_episode
from forkgym.agents.registry import make_agent
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.errors import ConfigError
from forkgym.sandboxes.errors import SandboxDeadError

END = 257
FIX = "```bash\nsed -i '5s/x/high/' clamp.py\n```"
LOOK = "```bash\ncat clamp.py\n```"
SUBMIT = "```bash\nsubmit\n```"
CHAT = ChatML(ByteTokenizer())


def play(env: Any, policy: Policy | None, agent: BashAgent | None = None, max_tokens: int = 500) -> Episode:
    params = SamplingParams(max_tokens=max_tokens)
    return (agent or BashAgent(CHAT)).run(
        env, policy, task="test/clamp", seed=7, sampling=params, episode="e", group="g"
    )


def test_solved_episode_is_recorded_whole(make_env) -> None:
    policy = ScriptedPolicy([LOOK, FIX, SUBMIT], version=4)
    episode = play(make_env(), policy)
    assert (episode.status, episode.reason, episode.reward) == ("finished", "submitted", 1.0)
    assert (episode.id, episode.task, episode.group, episode.harness, episode.seed) == (
        "e",
        "test/clamp",
        "g",
        "bash",
        7,
    )
    assert episode.verdict is not None
    assert episode.verdict["resolved"] is True
    assert [message["role"] for message in episode.prompt] == ["system", "user"]
    assert [step.text for step in episode.steps] == [LOOK, FIX, SUBMIT]
    assert [step.action for step in episode.steps] == [
        {"tool": "bash", "arguments": {"command": "cat clamp.py"}},
        {"tool": "bash", "arguments": {"command": "sed -i '5s/x/high/' clamp.py"}},
        {"tool": "submit", "arguments": {}},
    ]
    assert episode.steps[0].observation.startswith("def clamp(x, low, high):\n")
    assert [step.reward for step in episode.steps] == [0.0, 0.0, 1.0]
    assert [call.params.seed for call in policy.calls] == [turn_seed(7, turn) for turn in range(3)]
    back = decode_episode(encode_episode(episode))
    assert json.loads(encode_episode(back)) == json.loads(encode_episode(episode))


def test_what_shaped_the_distribution_is_recorded(make_env) -> None:
    params = SamplingParams(max_tokens=99, temperature=0.5, top_p=0.9, top_k=40)
    episode = BashAgent(CHAT).run(
        make_env(), ScriptedPolicy([SUBMIT]), task="test/clamp", seed=0, sampling=params, episode="e", group="g"
    )
    assert decode_episode(encode_episode(episode)).sampling == {"temperature": 0.5, "top_p": 0.9, "top_k": 40}


def test_stream_is_token_exact(make_env) -> None:
    policy = ScriptedPolicy([LOOK, FIX, SUBMIT], version=4)
    episode = play(make_env(), policy)
    (segment,) = episode.segments
    tokenizer = policy.tokenizer
    # The text is what a reader of the chat would see, byte for byte.
    opening = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{episode.prompt[1]['content']}<|im_end|>\n"
    shown = [step.observation for step in episode.steps]
    expected = opening + f"<|im_start|>assistant\n{LOOK}<|im_end|>\n<|im_start|>user\n{shown[0]}<|im_end|>\n"
    expected += f"<|im_start|>assistant\n{FIX}<|im_end|>\n<|im_start|>user\n{shown[1]}<|im_end|>\n"
    expected += f"<|im_start|>assistant\n{SUBMIT}<|im_end|>"
    assert tokenizer.decode(segment.ids) == expected
    # Exactly the sampled tokens are marked, with their own log-probabilities, in order.
    sampled = [i for i, was in enumerate(segment.sampled) if was]
    texts = [*LOOK.encode(), END, *FIX.encode(), END, *SUBMIT.encode(), END]
    assert [segment.ids[i] for i in sampled] == texts
    lengths = [len(LOOK) + 1, len(FIX) + 1, len(SUBMIT) + 1]
    assert [segment.logprobs[i] for i in sampled] == [-(i + 1) / 128 for n in lengths for i in range(n)]
    assert [segment.turn[i] for i in sampled] == [turn for turn, n in enumerate(lengths) for _ in range(n)]
    assert {segment.version[i] for i in sampled} == {4}
    # Each prompt that reached the engine is a prefix of the stream and extends the one before.
    prompts = [list(call.ids) for call in policy.calls]
    assert all(segment.ids[: len(prompt)] == prompt for prompt in prompts)
    assert episode.metrics["sampled_tokens"] == sum(lengths)
    assert episode.metrics["prompt_tokens"] == len(segment.ids) - sum(lengths)
    assert episode.metrics["turns"] == 3


def test_cut_turn_is_closed_by_a_token_that_is_not_sampled(make_env) -> None:
    episode = play(make_env(max_turns=1), ScriptedPolicy(["a" * 30, SUBMIT]), max_tokens=10)
    (segment,) = episode.segments
    assert sum(segment.sampled) == 10
    assert segment.ids[-10:] == list(b"a" * 10)
    two = play(make_env(max_turns=2), ScriptedPolicy(["a" * 30, "b" * 30]), max_tokens=10)
    (segment,) = two.segments
    after = segment.sampled.index(True) + 10
    assert (segment.ids[after], segment.sampled[after]) == (END, False)
    assert sum(segment.sampled) == 20


def test_malformed_turn_is_answered_and_counted(make_env) -> None:
    episode = play(make_env(), ScriptedPolicy(["I will fix it.", SUBMIT]))
    assert episode.steps[0].observation.startswith("Found no bash block.")
    assert "no bash block" in episode.steps[0].action["malformed"]
    assert (episode.status, episode.reward) == ("finished", 0.0)


@pytest.mark.parametrize(
    ("options", "script", "reason", "reward"),
    [
        ({"max_turns": 2}, [LOOK, FIX], "turns", 1.0),
        ({"max_tokens": 40}, [FIX, LOOK, LOOK], "tokens", 1.0),
        ({"max_turns": 2}, [LOOK, LOOK], "turns", 0.0),
    ],
)
def test_limits_truncate_and_grade_what_is_there(make_env, options, script, reason, reward) -> None:
    episode = play(make_env(**options), ScriptedPolicy(script))
    assert (episode.status, episode.reason, episode.reward) == ("truncated", reason, reward)


def test_full_window_truncates_and_grades_what_is_there(make_env) -> None:
    opening = len(CHAT.start([{"role": "system", "content": SYSTEM}, {"role": "user", "content": ""}]))
    policy = ScriptedPolicy([FIX, LOOK, LOOK, LOOK, LOOK], window=opening + 400)
    episode = play(make_env(), policy)
    assert (episode.status, episode.reason, episode.reward) == ("truncated", "context", 1.0)
    assert len(episode.steps) >= 1
    none = play(make_env(), ScriptedPolicy([FIX], window=10))
    assert (none.status, none.reason, none.reward, none.steps) == ("truncated", "context", 0.0, [])


@pytest.mark.parametrize(
    ("fault", "reason", "detail"),
    [
        (RuntimeError("CUDA is gone"), "engine", "PolicyError: the engine raised RuntimeError: CUDA is gone"),
        (Completion((), (), "stop"), "engine", "PolicyError: the engine gave no token ids"),
        (SandboxDeadError("box"), "sandbox", "SandboxDeadError: box"),
    ],
)
def test_engine_failure_is_typed_and_unscored(make_env, fault, reason, detail) -> None:
    episode = play(make_env(), ScriptedPolicy([FIX, fault]))
    assert (episode.status, episode.reason, episode.reward) == ("failed", reason, None)
    assert episode.detail.startswith(detail)
    assert episode.scored is False
    assert len(episode.steps) == 1
    encode_episode(episode)


def test_dead_sandbox_is_a_sandbox_failure(make_env) -> None:
    env = make_env()

    def script(call: Any) -> str:
        env.box.close()
        return LOOK

    episode = play(env, ScriptedPolicy(script))
    assert (episode.status, episode.reason, episode.reward) == ("failed", "sandbox", None)


def test_error_of_the_loop_itself_is_the_harness(make_env) -> None:
    class Broken(ChatML):
        def decode(self, ids):
            raise KeyError("lost")

    episode = play(make_env(), ScriptedPolicy([LOOK]), BashAgent(Broken(ByteTokenizer())))
    assert (episode.status, episode.reason, episode.reward) == ("failed", "harness", None)
    assert episode.detail == "KeyError: 'lost'"


def test_format_that_rewrites_the_stream_is_caught(make_env) -> None:
    class Rewriting(ChatML):
        def extend(self, ids, messages):
            return [0, *super().extend(ids, messages)[1:]]

    episode = play(make_env(), ScriptedPolicy([LOOK, SUBMIT]), BashAgent(Rewriting(ByteTokenizer())))
    assert (episode.status, episode.reason, episode.reward) == ("failed", "harness", None)
    assert "rewrote tokens" in episode.detail


@pytest.mark.parametrize(
    "stop", [KeyboardInterrupt(), Completion((), (), "cancelled"), Completion((1,), (-1.0,), "cancelled")]
)
def test_interrupt_and_cancelled_engine_are_cancelled(make_env, stop) -> None:
    episode = play(make_env(), ScriptedPolicy([LOOK, stop]))
    assert (episode.status, episode.reward, episode.verdict) == ("cancelled", None, None)
    encode_episode(episode)


def test_callers_mistakes_are_raised(make_env) -> None:
    with pytest.raises(ConfigError, match="needs a policy"):
        play(make_env(), None)
    agent = make_agent("bash", format=CHAT)
    with pytest.raises(ConfigError, match="test/clamp"):
        agent.run(
            make_env(), ScriptedPolicy([]), task="test/clmp", seed=0, sampling=SamplingParams(), episode="e", group="g"
        )
    with pytest.raises(ConfigError, match="observation_chars"):
        BashAgent(CHAT, observation_chars=0)
    with pytest.raises(ConfigError, match="unknown format 'bsh'"):
        BashAgent(CHAT, actions="bsh")


def test_observation_cap_and_opening(make_env) -> None:
    agent = BashAgent(CHAT, system=None, observation_chars=60)
    episode = play(make_env(), ScriptedPolicy(["```bash\nseq 1000\n```", SUBMIT]), agent)
    assert len(episode.steps[0].observation) <= 60
    assert "characters cut" in episode.steps[0].observation
    assert [message["role"] for message in episode.prompt] == ["user"]


def test_what_is_privileged_is_recorded_before_each_turn_and_never_shown(make_env) -> None:
    policy = ScriptedPolicy([LOOK, FIX, SUBMIT])
    episode = play(make_env(), policy, BashAgent(CHAT, privileged=True))
    assert [block["fraction"] for block in episode.privileged] == [0.5, 0.5, 1.0]
    assert [block["files_changed"] for block in episode.privileged] == [0, 0, 1]
    plain = play(make_env(), ScriptedPolicy([LOOK, FIX, SUBMIT]))
    assert plain.privileged == []
    assert plain.segments == episode.segments
    assert decode_episode(encode_episode(episode)).privileged == episode.privileged


def test_an_observation_that_the_format_cannot_write_fails_the_episode_and_not_the_run(make_env, monkeypatch) -> None:
    chat = ChatML(ByteTokenizer())

    def refuse(ids: Any, messages: Any) -> list[int]:
        raise ConfigError("no such role")

    monkeypatch.setattr(chat, "extend", refuse)
    episode = play(make_env(), ScriptedPolicy([LOOK, SUBMIT]), BashAgent(chat))
    assert (episode.status, episode.reason, episode.reward) == ("failed", "harness", None)
    assert "cannot write the observation: no such role" in episode.detail

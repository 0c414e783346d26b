from __future__ import annotations

import json
import math
import resource
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkgym.agents.base import Completion, Episode, Segment, Step
from forkgym.agents.records import EpisodeWriter, check_episode, decode_episode, encode_episode, read_episodes
from forkgym.errors import ConfigError


def episode(id: str = "e1", reward: float | None = 1 / 3) -> Episode:
    segment = Segment()
    segment.append_prompt([1, 2, 3], turn=0)
    segment.append_completion(Completion((4, 5), (-0.1, -1e-17), "stop", version=7), turn=0)
    return Episode(
        id=id,
        task="swe/tiny/clamp",
        group="g",
        harness="bash",
        seed=2**63 - 1,
        status="finished",
        reason="submit",
        prompt=[{"role": "user", "content": "fix naïve ❌ \ud800 \u2028\n"}],
        steps=[Step(0, "text", {"tool": "bash", "arguments": {"command": "ls"}}, "a\n", 0.0, 0.25, 0.125)],
        segments=[segment],
        verdict={"score": 1.0, "resolved": True, "stage": "resolved"},
        reward=reward,
        parent=("e0", 2),
        metrics={"tokens": 2.0},
        submission='{"changes": {}}',
        tree="ab" * 32,
    )


def test_round_trip_is_equal() -> None:
    line = encode_episode(episode())
    assert "\n" not in line
    assert decode_episode(line) == episode()
    assert json.loads(line)["schema_version"] == 2


def test_records_of_version_1_are_read_with_what_they_do_not_have_absent() -> None:
    line = """{"schema_version":1,"id":"e","task":"t","group":"g","harness":"bash","seed":7,"status":"finished",
    "reason":"submitted","prompt":[],"steps":[{"turn":0,"text":"x","action":{"tool":"submit","arguments":{}},
    "observation":"","reward":1.0,"seconds":0.5,"policy_seconds":0.25}],"segments":[],"verdict":null,"reward":1.0,
    "parent":null,"metrics":{},"detail":"","sampling":{}}"""
    old = decode_episode(line)
    assert (old.submission, old.tree, old.permanent, old.steps[0].tree) == (None, "", False, "")
    assert json.loads(encode_episode(old))["schema_version"] == 2


@given(
    st.floats(max_value=0.0, allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False)
)
def test_floats_come_back_bit_for_bit(logprob: float, reward: float) -> None:
    one = episode(reward=reward)
    one.segments[0].logprobs[3] = logprob
    back = decode_episode(encode_episode(one))
    assert back.reward is not None
    assert back.reward.hex() == reward.hex()
    assert back.segments[0].logprobs[3].hex() == logprob.hex()


def test_write_read_and_append(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "episodes.jsonl"
    with EpisodeWriter(path, sync=True) as writer:
        writer.write(episode("a"))
    with EpisodeWriter(path) as writer:
        writer.write(episode("b", reward=None))
        assert writer.dropped == 0
    log = read_episodes(path)
    assert [e.id for e in log.episodes] == ["a", "b"]
    assert log.dropped == 0
    assert log.episodes[1].scored is False


def test_torn_last_line_is_dropped_counted_and_kept_aside(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    with EpisodeWriter(path) as writer:
        writer.write(episode("a"))
        writer.write(episode("b"))
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in (first + 1, first + 40, len(whole) - 2):
        path.write_bytes(whole[:cut])
        log = read_episodes(path)
        assert ([e.id for e in log.episodes], log.dropped) == (["a"], 1)
    with EpisodeWriter(path) as writer:
        assert writer.dropped == 1
        writer.write(episode("c"))
    assert [e.id for e in read_episodes(path).episodes] == ["a", "c"]
    assert Path(f"{path}.torn").read_bytes() == whole[first:-2] + b"\n"


def test_line_that_lost_only_its_newline_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    path.write_text(encode_episode(episode("a")))
    assert [e.id for e in read_episodes(path).episodes] == ["a"]
    with EpisodeWriter(path) as writer:
        assert writer.dropped == 0
        writer.write(episode("b"))
    assert [e.id for e in read_episodes(path).episodes] == ["a", "b"]


def test_broken_line_in_the_middle_is_an_error_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    path.write_text(encode_episode(episode("a")) + "\n{oops\n" + encode_episode(episode("b")) + "\n")
    with pytest.raises(ConfigError, match=r"episodes\.jsonl line 2: not JSON"):
        read_episodes(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 3}, "schema version 3; this ForkGym reads versions 1 and 2. Upgrade"),
        ({"mood": 1}, "unknown keys mood"),
        ({"status": "fine"}, "status"),
        ({"status": "failed"}, r"failed\(submit\) with reward"),
    ],
)
def test_foreign_records_are_refused(change: dict[str, object], message: str) -> None:
    row = json.loads(encode_episode(episode())) | change
    with pytest.raises(ConfigError, match=message):
        decode_episode(json.dumps(row))


def test_missing_file_and_plain_json_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_episodes(tmp_path / "none.jsonl")
    with pytest.raises(ConfigError, match="no schema_version"):
        decode_episode("[1]")


def test_second_writer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    with EpisodeWriter(path), pytest.raises(ConfigError, match="written by another run"):
        EpisodeWriter(path)
    EpisodeWriter(path).close()


def test_threads_never_mix_lines(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    with EpisodeWriter(path) as writer:
        threads = [
            threading.Thread(target=lambda n=n: [writer.write(episode(f"{n}.{i}")) for i in range(20)])
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {e.id for e in read_episodes(path).episodes} == {f"{n}.{i}" for n in range(4) for i in range(20)}


def test_untrainable_segments_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    short = episode()
    short.segments[0].logprobs.pop()
    lost = episode()
    lost.segments[0].logprobs[4] = math.nan
    forged = episode()
    forged.segments[0].logprobs[0] = -1.0
    endless = episode(reward=math.inf)
    cases = [(short, "unequal length"), (lost, "token 4 has logprob nan"), (forged, "not sampled"), (endless, "inf")]
    path = tmp_path / "episodes.jsonl"
    with EpisodeWriter(path) as writer:
        for bad, message in cases:
            with pytest.raises(ValueError, match=message):
                writer.write(bad)
    assert path.read_bytes() == b""
    check_episode(episode())


def test_a_line_that_finds_no_room_leaves_the_file_readable(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with EpisodeWriter(path) as writer:
        writer.write(episode("first"))
        size = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limits[1]))
        try:
            with pytest.raises(OSError, match="too large"):
                writer.write(episode("lost"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert path.stat().st_size == size
        writer.write(episode("next"))
    assert [e.id for e in read_episodes(path).episodes] == ["first", "next"]

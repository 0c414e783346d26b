"""The gateway by itself: clients name their episodes, and records are made of them."""

from __future__ import annotations

import pytest

from forkgym.agents.gateway.record import episode, steps
from forkgym.agents.gateway.visitors import Visitors
from forkgym.agents.records import decode_episode, encode_episode

USER = {"role": "user", "content": "hi"}


@pytest.fixture
def hosted(rig):
    one = rig(lambda call: f"reply {call.turn}")
    ended = []
    visitors = Visitors(one.gateway, ended.append, most=2, calls=3)

    def ask(name="", key="", **options):
        one.session.path = f"/e/{name}" if name else ""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return one.send("/v1/chat/completions", {"messages": [USER], **options}, **headers)

    return one, visitors, ended, ask


def test_names_open_episodes(hosted):
    one, visitors, ended, ask = hosted
    assert ask("a", temperature=0.5).status == 200
    assert ask().status == 200
    assert ask(key="whatever").status == 200
    assert one.policy.calls[0].params.temperature == 0.5
    assert [len(visitors.admit(name).calls) for name in ("a", "default")] == [1, 2]
    assert ask("a%20b").status == 404
    one.session.path = "/e/a"
    assert one.send("", method="GET").json["calls"] == 1
    assert one.send("", method="DELETE").json == {
        "calls": 1,
        "waiting": 0,
        "sampled_tokens": 8,
        "ended": "",
        "episode": "a",
    }
    assert one.send("", method="DELETE").status == 404
    assert [session.episode for session in ended] == ["a"]
    assert ask("a").status == 200
    visitors.close()
    assert {session.episode for session in ended} == {"a", "default", "a.2"}
    assert list(one.gateway.sessions.values()) == [one.session]


def test_a_key_that_is_the_name_of_another_episode_means_nothing(hosted):
    _, visitors, _, ask = hosted
    assert ask("a").status == 200
    assert [ask("b", key="a", user=str(i)).status for i in range(2)] == [200, 200]
    assert [len(visitors.admit(name).calls) for name in ("a", "b")] == [1, 2]


def test_what_is_open_is_bounded(hosted):
    one, _, ended, ask = hosted
    for name in "abc":
        ask(name)
    assert [session.episode for session in ended] == ["a"]
    for i in range(4):
        ask("c", user=str(i))
    assert [(session.episode, len(session.calls)) for session in ended] == [("a", 1), ("c", 3)]
    assert len(one.gateway.sessions) == 3


def test_an_engine_failure_ends_one_episode_only(rig):
    lines = iter([RuntimeError("gone"), "fine"])
    one = rig(lambda call: next(lines))
    ended = []
    Visitors(one.gateway, ended.append)
    one.session.path = "/e/a"
    assert [one.chat([USER]).status for _ in range(2)] == [500, 200]
    record = episode(ended[0])
    assert (record.id, record.status, record.reason, record.segments) == ("a", "failed", "engine", [])


def test_records(rig):
    """The record of a session is one that ``read_episodes`` takes, with and without side calls."""
    one = rig(lambda call: f"a reply {call.turn}")
    said = one.chat([USER], tools=TOOLS, temperature=1).json["choices"][0]["message"]
    one.chat([{"role": "system", "content": "Name it."}, USER])
    one.chat([USER, said, {"role": "user", "content": "more"}], tools=TOOLS)
    record = decode_episode(encode_episode(episode(one.session)))
    assert (record.status, record.reason, record.reward) == ("finished", "closed", None)
    assert record.prompt == [USER]
    assert [(s.turn, s.text, s.observation) for s in record.steps] == [
        (0, "a reply 0", "more"), (1, "a reply 0", ""), (2, "a reply 1", "")
    ]  # fmt: skip
    assert record.steps[1].action["kind"] == "side"
    assert record.segments == one.session.segments()
    assert record.sampling == one.session.sampling.shaping
    assert record.metrics == {"gateway/side": 1.0, "calls": 3.0}
    assert [s.turn for s in steps(one.session.calls, ("main",))] == [0, 2]


def test_varied_sampling_is_not_called_uniform(rig):
    one = rig(lambda call: "ok", sampling=None)
    one.chat([USER], temperature=0.5)
    one.chat([USER], temperature=0.6)
    assert episode(one.session).sampling == {}


TOOLS = [{"type": "function", "function": {"name": "sh", "parameters": {"type": "object", "properties": {}}}}]

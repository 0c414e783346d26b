"""Clients that hang up, come again, come in crowds, and ask for what cannot be had."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from forkgym.agents.base import Completion, SamplingParams
from forkgym.agents.errors import ContextLengthError, PolicyError
from forkgym.agents.gateway.server import Gateway
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.errors import ConfigError

USER = {"role": "user", "content": "hi"}
PATHS = ["/v1/chat/completions", "/v1/messages", "/v1/responses"]


class Gate:
    """A script that answers when it is told to."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered = threading.Semaphore(0)
        self.count = 0

    def __call__(self, call):
        self.count += 1
        self.entered.release()
        assert self.open.wait(20)
        return f"answer {self.count}"


def until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


BODY = {"model": "m", "messages": [USER]}


def test_E07_a_client_that_hangs_up_leaves_no_success(rig):
    """Case E07: the sample is marked, and no segment shows it; the next call is an ordinary first turn."""
    gate = Gate()
    one = rig(gate)
    client = one.connect({**BODY, "stream": True})
    assert gate.entered.acquire(timeout=20)
    client.close()
    until(lambda: one.session.counts["disconnected"])
    gate.open.set()
    until(lambda: one.session.calls)
    until(lambda: one.session.calls[0].disconnected)
    assert one.session.segments() == []
    assert one.chat([USER], temperature=0.1).status == 200
    assert len(one.session.segments()) == 1
    assert one.session.calls[0].disconnected
    until(lambda: one.gateway.running == 0)


def test_E07_a_client_that_stops_reading_in_the_middle_of_a_stream(rig):
    """Case E07: three chunks were read of many; that is no answer that arrived."""
    text = "word " * 400_000
    one = rig([Completion(tuple(text.encode()), (-1.0,) * len(text), "length")])
    client = one.connect({**BODY, "stream": True})
    response = client.getresponse()
    assert [response.readline()[:6] for _ in range(6)] == [b"data: ", b"\n"] * 3
    client.close()
    response.close()
    until(lambda: one.session.counts["disconnected"])
    assert one.session.calls[0].disconnected
    assert one.session.segments() == []


def test_a_greedy_model_may_say_the_same_to_two_clients(rig):
    """One hung up, one got the answer: the talk goes on from the one that arrived."""
    gate = Gate()
    one = rig(lambda call: gate(call) and "always the same")
    client = one.connect(BODY)
    assert gate.entered.acquire(timeout=20)
    client.close()
    until(lambda: one.session.counts["disconnected"])
    gate.open.set()
    until(lambda: one.session.calls and one.session.calls[0].disconnected)
    said = one.chat([USER]).json["choices"][0]["message"]
    one.chat([USER, said, USER])
    assert [sum(segment.sampled) for segment in one.session.segments()] == [2 * 16]
    assert one.session.calls[0].disconnected


def test_the_same_body_while_the_first_still_runs_is_one_sample(rig):
    gate = Gate()
    one = rig(gate)
    first = one.connect(BODY)
    assert gate.entered.acquire(timeout=20)
    first.close()
    until(lambda: one.session.counts["disconnected"])
    second = one.connect(BODY)
    until(lambda: one.session.counts["repeated"])
    gate.open.set()
    answer = json.loads(second.getresponse().read())
    assert answer["choices"][0]["message"]["content"] == "answer 1"
    assert gate.count == len(one.session.calls) == 1
    assert not one.session.calls[0].disconnected
    assert len(one.sampled()) == len("answer 1") + 1


def test_who_hung_up_gets_the_answer_later(rig):
    gate = Gate()
    one = rig(gate)
    first = one.connect(BODY)
    assert gate.entered.acquire(timeout=20)
    first.close()
    until(lambda: one.session.counts["disconnected"])
    gate.open.set()
    until(lambda: one.session.calls)
    assert one.chat([USER]).status == 200  # other options: another request
    answer = one.send("/v1/chat/completions", BODY).json
    assert answer["choices"][0]["message"]["content"] == "answer 1"
    assert gate.count == 2


@pytest.mark.parametrize("name", ["idempotency-key", "x-request-id", "x-stainless-retry-count"])
def test_retries_that_say_so_are_not_sampled_again(rig, name):
    one = rig(["first", "second"])
    for _ in range(3):
        answer = one.send("/v1/chat/completions", BODY, **{name: "1"})
        assert answer.json["choices"][0]["message"]["content"] == "first"
    assert len(one.policy.calls) == 1
    one.send("/v1/chat/completions", {**BODY, "messages": [USER, USER]}, **{name: "1"})
    assert len(one.policy.calls) == 2


def test_a_failure_is_not_remembered(rig):
    lines = iter([RuntimeError("gone"), "fine"])
    one = rig(lambda call: next(lines))
    answer = one.send("/v1/chat/completions", BODY, x_request_id="a")
    assert (answer.status, answer.headers["x-should-retry"]) == (500, "false")
    assert one.session.ended == "engine: the engine raised RuntimeError: gone"
    assert one.session.calls[0].error == "the engine raised RuntimeError: gone"
    again = one.send("/v1/chat/completions", BODY, x_request_id="a")
    assert again.status == 500
    assert "the episode failed" in again.json["error"]["message"]
    assert one.session.segments() == []


def test_choices_of_which_one_fails_are_none(rig):
    lines = iter(["one", ContextLengthError("full"), "later"])
    one = rig(lambda call: next(lines), max_calls=2)
    assert one.chat([USER], n=2).status == 400
    assert one.session.segments() == []
    assert [(call.turn is None, call.disconnected) for call in one.session.calls] == [(False, True), (True, False)]
    assert one.chat([USER]).status == 200  # what was refused is not charged
    assert [sum(segment.sampled) for segment in one.session.segments()] == [6]


def test_streams_that_wait_are_kept_alive(rig):
    gate = Gate()
    one = rig(gate, gateway={"ping": 0.02})
    client = one.connect({**BODY, "stream": True})
    response = client.getresponse()
    assert response.status == 200
    assert response.readline() == b": ping\n"
    gate.open.set()
    rest = response.read().decode()
    assert rest.endswith("data: [DONE]\n\n")
    assert '"content": "answer 1"' in rest


@pytest.mark.parametrize("path", PATHS)
def test_a_failure_in_a_stream_that_has_begun(rig, path):
    gate = threading.Event()

    def script(call):
        assert gate.wait(20)
        return PolicyError("the engine is gone")

    one = rig(script, gateway={"ping": 0.02})
    client = one.connect({"messages": [USER], "input": "hi", "stream": True}, path)
    response = client.getresponse()
    assert response.readline() == b": ping\n"
    gate.set()
    rest = response.read().decode()
    assert "the engine is gone" in rest
    assert '"finish_reason": "stop"' not in rest
    assert one.session.ended.startswith("engine")


def test_back_pressure(rig):
    gate = Gate()
    one = rig(gate, gateway={"concurrency": 1, "queue": 1})
    clients = [one.connect({**BODY, "user": str(i)}) for i in range(2)]
    until(lambda: one.gateway.running == 2)
    for path, kind in zip(PATHS, ["rate_limit_error"] * 3, strict=True):
        answer = one.send(path, {**BODY, "input": "hi"})
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert answer.json["error"]["type"] == kind
    gate.open.set()
    assert [client.getresponse().status for client in clients] == [200, 200]
    until(lambda: one.gateway.running == 0)
    assert one.send("/v1/chat/completions", {**BODY, "user": "3"}).status == 200


def test_budget_of_calls(rig):
    one = rig(["a", "b", "c"], max_calls=2)
    assert one.chat([USER]).status == one.chat([USER], user="2").status == 200
    assert one.session.ended == ""
    answer = one.chat([USER], user="3")
    assert (answer.status, one.session.ended) == (403, "calls")
    assert answer.headers["x-should-retry"] == "false"
    assert len(one.session.calls) == 2


def test_budget_of_tokens(rig):
    one = rig(["abcdef"], max_tokens=4)
    assert one.chat([USER]).json["choices"][0]["finish_reason"] == "length"
    assert one.chat([USER], user="2").status == 403
    assert one.session.ended == "tokens"
    assert len(one.sampled()) == 4


def test_a_full_window_is_an_orderly_refusal(rig):
    """A harness that sums up its history may go on; one that doesn't has ended as ``context``."""
    one = rig(lambda call: "ok", policy=ScriptedPolicy(lambda call: "ok", window=100))
    long = {"role": "user", "content": "x" * 200}
    for path, code in zip(PATHS, ["context_length_exceeded", None, "context_length_exceeded"], strict=True):
        answer = one.send(path, {"messages": [long], "input": [long], "max_tokens": 9})
        assert answer.status == 400
        error = answer.json["error"]
        assert error["type"] == "invalid_request_error"
        assert error.get("code") == code
        assert "window holds 100" in error["message"]
        assert one.session.ended == "context"
        assert answer.headers["x-should-retry"] == "false"
    assert one.chat([USER]).status == 200
    assert one.session.ended == ""
    assert one.session.counts == {"refused:context": 3}


def test_E09_an_engine_without_ids_or_logprobs_is_refused(rig):
    """Case E09: nothing is made up, nothing empty is kept."""
    for wrong in (Completion((), (), "stop"), Completion((1, 2), (-1.0, float("nan")), "stop")):
        one = rig([wrong])
        assert one.chat([USER]).status == 500
        assert one.session.ended.startswith("engine: the engine gave")
        assert one.session.segments() == []


def test_E11_a_second_attempt_has_a_record_of_its_own(rig):
    """Case E11: two calls, a crash, then three calls under the same episode id; read right after the last answer."""
    one = rig(lambda call: "ok")
    first = one.session
    one.chat([USER])
    one.chat([USER], user="b")
    first.close()
    for _ in range(100):
        with one.gateway.open("episode", SamplingParams()) as session:
            for i in range(3):
                body = {"messages": [USER], "user": str(i)}
                assert one.send("/v1/chat/completions", body, session=session).status == 200
            assert len(session.calls) == len(session.segments()) == 3
        assert one.send("/v1/chat/completions", BODY, session=session).status == 401
    assert one.chat([USER]).status == 403
    assert len(first.calls) == 2


def test_what_is_sampled_after_the_end_belongs_to_no_record(rig):
    gate = Gate()
    one = rig(gate)
    client = one.connect(BODY)
    assert gate.entered.acquire(timeout=20)
    one.session.close()
    gate.open.set()
    assert client.getresponse().status == 403
    assert (one.session.calls, one.session.segments()) == ([], [])


def test_64_episodes_at_once_do_not_mix(rig):
    one = rig(lambda call: f"{call.text.split('secret ')[1].split('<')[0]} turn {call.turn}")

    def play(i):
        with one.gateway.open(f"e{i}", SamplingParams(max_tokens=50), seed=i) as session:
            messages = [{"role": "user", "content": f"secret {i}"}]
            for turn in range(5):
                answer = one.send("/v1/chat/completions", {"messages": messages, "stream": turn % 2}, session=session)
                assert answer.status == 400  # stream must be true or false
                body = {"messages": messages}
                said = one.send("/v1/chat/completions", body, session=session).json["choices"][0]["message"]
                assert said["content"] == f"{i} turn {turn}"
                messages += [said, {"role": "user", "content": "on"}]
            (segment,) = session.segments()
            return one.format.tokenizer.decode(
                [id for id, mine in zip(segment.ids, segment.sampled, strict=True) if mine]
            )

    with ThreadPoolExecutor(64) as pool:
        found = list(pool.map(play, range(64)))
    assert found == ["".join(f"{i} turn {turn}<|im_end|>" for turn in range(5)) for i in range(64)]
    assert set(one.gateway.sessions) == {one.session.key}


def test_the_key_of_another_episode_is_refused(rig):
    one = rig(["x"])
    with one.gateway.open("other", None) as other:
        answer = one.send("/v1/chat/completions", BODY, authorization=f"Bearer {other.key}")
        assert answer.status == 401
        assert one.send("/v1/chat/completions", BODY, authorization="Bearer anything").status == 200


def test_random_disconnects_leave_nothing_behind(rig):
    """300 clients, of which many hang up at a random time; ``benchmarks/gateway.py`` does it with 10^4."""
    draw = random.Random(7)
    one = rig(lambda call: "z" * draw.randrange(2000), gateway={"ping": 0.01, "concurrency": 8})

    def visit(i):
        body = {"messages": [{"role": "user", "content": f"{i}"}], "stream": bool(i % 2)}
        client = one.connect(body)
        if i % 3:
            client.close() if i % 5 else client.sock.shutdown(socket.SHUT_RDWR)
            return 0
        response = client.getresponse()
        response.read(draw.randrange(200)) if i % 4 else response.read()
        client.close()
        return response.status

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(visit, range(300))) == {0, 200}
    until(lambda: one.gateway.running == 0)
    delivered = [record for record in one.session.calls if not record.disconnected]
    assert len(one.session.segments()) == len(delivered)
    assert len(delivered) >= 25  # those who read to the end
    assert one.session.describe()["waiting"] == 0


def test_seeds_follow_the_prompt_not_the_order_of_calls(rig):
    seeds = []
    for order in ([1, 2], [2, 1]):
        one = rig(lambda call: "ok", seed=5)
        for i in order:
            one.chat([{"role": "user", "content": str(i)}])
        one.chat([{"role": "user", "content": "1"}], user="again")
        calls = {(call.text, i >= 2): call.params.seed for i, call in enumerate(one.policy.calls)}
        seeds.append(calls)
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0].values())) == 3


def test_where_it_listens(rig, tmp_path):
    one = rig(["x"])
    path = tmp_path / "llm.sock"
    with Gateway(one.policy, one.format, socket=path) as gateway, gateway.open("e", None) as session:
        assert session.base_url == ""
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(f"GET {session.path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
        with pytest.raises(ConfigError, match="cannot listen"):
            Gateway(one.policy, one.format, socket=path).__enter__()
    assert not path.exists()
    with pytest.raises(ConfigError, match="give one of them"):
        Gateway(one.policy, one.format)
    with pytest.raises(ConfigError, match="cannot listen"):
        Gateway(one.policy, one.format, port=int(one.gateway.url.rsplit(":", 1)[1])).__enter__()


def test_a_window_error_of_a_policy_is_not_an_engine_failure(rig):
    one = rig([ContextLengthError("too long")])
    assert one.chat([USER]).status == 400
    assert one.session.ended == "context"

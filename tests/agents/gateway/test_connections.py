"""Connections beyond the bound: idle ones make room, and where none is idle the client is told to come again."""

from __future__ import annotations

import json
import socket
import threading

import pytest

from forkgym.agents.gateway import connections
from forkgym.errors import ConfigError

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def dial(one) -> socket.socket:
    host, port = one.gateway.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_clients_that_say_nothing_make_room(rig, monkeypatch):
    """Some say nothing, some half a head, some a head without its body: none keeps a client out."""
    monkeypatch.setattr(connections, "GRACE", 0.0)
    one = rig(lambda call: "ok", gateway={"connections": 5})
    said = [b"", b"POST /v1/mess", b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{"]
    silent = [dial(one) for _ in range(12)]
    for i, client in enumerate(silent[-5:]):
        client.sendall(said[i % 3])
    assert one.send("/v1/chat/completions", BODY).status == 200
    assert all(closed(client) for client in silent[:7])
    assert one.send("/v1/messages", {**BODY, "max_tokens": 5}).status == 200
    for client in silent:
        client.close()


def test_a_client_beyond_the_bound_is_told_to_come_again(rig):
    entered, go = threading.Semaphore(0), threading.Event()

    def wait(call):
        entered.release()
        assert go.wait(20)
        return "ok"

    one = rig(wait, gateway={"connections": 2})
    waiting = [one.connect({**BODY, "user": str(i)}) for i in range(2)]
    assert entered.acquire(timeout=20)
    assert entered.acquire(timeout=20)
    for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses"):
        answer = one.send(path, {**BODY, "pad": "x" * 300_000})
        assert (answer.status, answer.headers["retry-after"], answer.headers["x-should-retry"]) == (429, "1", "true")
        assert "2 connections are open" in answer.json["error"]["message"]
    go.set()
    assert [json.loads(client.getresponse().read())["choices"][0]["message"]["content"] for client in waiting] == [
        "ok",
        "ok",
    ]
    assert len(one.session.calls) == 2
    with pytest.raises(ConfigError, match="at least 1"):
        rig(wait, gateway={"connections": 0})

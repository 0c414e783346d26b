"""What the gateway adds to a call of the policy, and whether crowds and hang-ups leave anything behind.

python benchmarks/gateway.py [N]
"""

from __future__ import annotations

import http.client
import json
import random
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from harness import Section

from forkgym.agents.base import Completion, SamplingParams
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.gateway.server import Gateway
from forkgym.agents.gateway.session import Session
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.sandboxes.bench.timing import Timing

ADDED = 3.0
TURNS, EPISODES, VISITS = 30, 64, 10_000
DIALECTS = {"chat completions": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
_TOKENIZER = ByteTokenizer()
_SAID = "I look at the file, then I run the tests. " * 6
_WORDS = (*_TOKENIZER.encode(_SAID), _TOKENIZER.special("<|im_end|>"))


class Parrot:
    """A policy that says the same 250 tokens at once, so that what is measured is the gateway."""

    version = 0

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def generate(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Completion]:
        start = time.perf_counter()
        ids = _WORDS[: params.max_tokens]
        completions = [Completion(ids, (-0.5,) * len(ids), "stop") for _ in prompts]
        self.seconds.append(time.perf_counter() - start)
        return completions

    def close(self) -> None: ...


class Client:
    """One connection that is kept, and one conversation."""

    def __init__(self, gateway: Gateway, session: Session, path: str, *, stream: bool = False) -> None:
        self._connection = http.client.HTTPConnection(gateway.url.removeprefix("http://"), timeout=60)
        self._path, self._stream = session.path + path, stream
        self._talk: list[Any] = [{"role": "user", "content": "Fix the bug. " * 40}]

    def turn(self) -> float:
        """Seconds until the whole answer is there."""
        body = json.dumps({"messages": self._talk, "input": self._talk, "max_tokens": 999, "stream": self._stream})
        start = time.perf_counter()
        self._connection.request("POST", self._path, body)
        response = self._connection.getresponse()
        response.read()
        seconds = time.perf_counter() - start
        assert response.status == 200
        self._talk += [{"role": "assistant", "content": _SAID}, {"role": "user", "content": "result " * 30}]
        return seconds

    def close(self) -> None:
        self._connection.close()


def run(n: int = 10) -> Section:
    """All rows. ``n`` conversations per dialect."""
    section = Section("Gateway", ["operation", "p50 / p95 ms", "target (p50)"])
    policy = Parrot()
    with Gateway(policy, ChatML(_TOKENIZER), port=0) as gateway:
        for name, path in DIALECTS.items():
            for stream in (False, True):
                policy.seconds.clear()
                calls = Timing([second * 1000 for second in _conversations(gateway, path, stream, n)])
                bare = Timing([second * 1000 for second in policy.seconds])
                what = f"a turn through {name}{', streamed' if stream else ''}: added to the policy"
                added = calls.p50 - bare.p50
                section.rows.append((what, str(calls), section.check(what, added, ADDED)))
        section.notes.append(_crowd(gateway))
        section.notes.append(_hangups(section, gateway))
    section.notes.append(
        f"Conversations of {TURNS} turns, each of {len(_WORDS)} sampled tokens, over one connection on loopback, ids "
        "checked and kept. The policy itself takes microseconds; what it takes is subtracted for the target."
    )
    return section


def _conversations(gateway: Gateway, path: str, stream: bool, n: int) -> list[float]:
    seconds: list[float] = []
    for i in range(n + 1):
        with gateway.open(f"e{i}", SamplingParams(max_tokens=999)) as session:
            client = Client(gateway, session, path, stream=stream)
            found = [client.turn() for _ in range(TURNS)]
            client.close()
            assert len(session.segments()) == 1
        if i:  # the first warms up
            seconds += found
    return seconds


def _crowd(gateway: Gateway) -> str:
    """Many episodes at once; each must keep its own tokens."""

    def play(i: int) -> int:
        with gateway.open(f"c{i}", SamplingParams(max_tokens=999)) as session:
            client = Client(gateway, session, DIALECTS["chat completions"], stream=bool(i % 2))
            for _ in range(10):
                client.turn()
            client.close()
            (segment,) = session.segments()
            return sum(segment.sampled)

    start = time.perf_counter()
    with ThreadPoolExecutor(EPISODES) as pool:
        found = list(pool.map(play, range(EPISODES)))
    rate = 10 * EPISODES / (time.perf_counter() - start)
    assert found == [10 * len(_WORDS)] * EPISODES
    return f"{EPISODES} episodes at once, in one process with their clients: {rate:.0f} calls per second; none mixed."


def _hangups(section: Section, gateway: Gateway) -> str:
    """Clients of which half hang up at a random time. Nothing may be left running, waiting or open."""
    draw = random.Random(1)
    threads = threading.active_count()

    def visit(i: int) -> None:
        client = http.client.HTTPConnection(gateway.url.removeprefix("http://"), timeout=60)
        asked = [{"role": "user", "content": f"{i}"}]
        body = {"messages": asked, "max_tokens": draw.randrange(1, 200), "stream": i % 4 < 2}
        client.request("POST", f"{session.path}/v1/chat/completions", json.dumps(body))
        if i % 2:
            response = client.getresponse()
            response.read() if i % 3 else response.read(draw.randrange(100))
        client.close()

    with gateway.open("crowd", SamplingParams(max_tokens=999)) as session:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(visit, range(VISITS)))
        end = time.monotonic() + 30
        while gateway.running and time.monotonic() < end:
            time.sleep(0.01)
        delivered = sum(not call.disconnected for call in session.calls)
        kept = len(session.segments())
    left = gateway.running + len(gateway.sessions) + abs(kept - delivered)
    if left or threading.active_count() > threads + 64:
        section.broken.append(f"{VISITS} visits left {gateway.running} calls, {len(gateway.sessions)} sessions")
    noticed = session.counts["disconnected"]
    return (
        f"{VISITS} requests, of which half hang up at once: {noticed} were gone before their answer, {kept} turns were "
        f"kept, {left} calls, sessions or samples without an owner were left."
    )


if __name__ == "__main__":
    sys.stdout.write(run(*map(int, sys.argv[1:2])).markdown())

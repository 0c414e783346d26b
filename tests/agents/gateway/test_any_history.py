"""Whatever a client does to its history: each delivered turn is in the segments once, after exactly what it was sampled
from, and every stream but the first has a cause."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from forkgym.agents.base import SamplingParams
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.gateway.answers import Ticket
from forkgym.agents.gateway.session import Session
from forkgym.agents.gateway.sources import TokenSource
from forkgym.agents.gateway.wire import Request, assistant
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.agents.tokenizers import ByteTokenizer

TOOL: Any = {"type": "function", "function": {"name": "sh", "parameters": {"type": "object", "properties": {}}}}
SYSTEM: Any = {"role": "system", "content": "Work."}
CAUSES = {
    "aside", "assistant_dropped", "assistant_edited", "compaction", "history_edited", "parallel", "resampled",
    "restart", "rewound", "side", "start", "subagent", "system_changed", "tools_changed",
}  # fmt: skip


class Client:
    """Remembers every conversation that it had, and goes on from any of them in its own way."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.said: list[str] = []
        tokenizer = ByteTokenizer()
        self.policy = ScriptedPolicy(self.script, tokenizer)
        self.session = Session(TokenSource(self.policy, ChatML(tokenizer)), "e", SamplingParams(max_tokens=300))
        self.talks: list[list[Any]] = []
        self.arrived: list[tuple[tuple[int, ...], str]] = []  # prompt and words of each turn that was delivered

    def script(self, call) -> str:
        words = self.draw.choice(["same again", f"reply {len(self.said)} and some more words", " padded "])
        if self.draw.random() < 0.4:
            arguments = {"b": 1.0, "a": self.draw.randrange(3)}
            words += f"\n<tool_call>\n{json.dumps({'name': 'sh', 'arguments': arguments})}\n</tool_call>"
        if self.draw.random() < 0.4:
            words = f"<think>hm {len(self.said)}</think>{words}"
        self.said.append(words)
        return words

    def step(self) -> None:
        draw = self.draw
        if not self.talks or draw.random() < 0.1:
            talk: list[Any] = [SYSTEM, {"role": "user", "content": draw.choice(["fix it", "find it"])}]
        else:
            talk = self.changed([dict(message) for message in draw.choice(self.talks)])
        tools: list[Any] = [] if draw.random() < 0.15 else [TOOL] * draw.choice([1, 1, 1, 2])
        ticket = Ticket("chat", draw.randbytes(8))
        asked = len(self.policy.calls)
        reply = self.session.answer(ticket, Request(talk, tools))
        ((prompt, words),) = [(call.ids, self.said[-1]) for call in self.policy.calls[asked:]]
        if draw.random() < 0.15:
            self.session.gone(ticket)
            return
        self.session.delivered(ticket)
        self.arrived.append((prompt, words))
        choice = reply.choices[0]
        calls = [(i, c.name, c.arguments) for i, c in zip(choice.call_ids, choice.turn.calls, strict=True)]
        talk = [*talk, assistant(choice.turn.text, choice.turn.reasoning, calls)]
        talk += [{"role": "tool", "tool_call_id": id, "content": draw.choice(["ok", "no"])} for id in choice.call_ids]
        if not choice.call_ids:
            talk.append({"role": "user", "content": draw.choice(["go on", "why?"])})
        self.talks.append(talk)

    def changed(self, talk: list[Any]) -> list[Any]:
        """The conversation as another client would send it, or rewritten."""
        draw = self.draw
        for message in talk:
            if draw.random() < 0.3:
                message.pop("reasoning_content", None)
            if draw.random() < 0.2:
                message["content"] = message["content"].strip()
            for call in message.get("tool_calls", ()):
                if draw.random() < 0.3:
                    value = json.loads(call["function"]["arguments"])
                    call["function"] = {"name": "sh", "arguments": json.dumps(dict(sorted(value.items())), indent=1)}
        if draw.random() < 0.12:
            draw.choice(talk)["content"] += " edited"
        if draw.random() < 0.1:
            talk[0] = {"role": "system", "content": draw.choice(["Search.", "It is Tuesday."])}
        if draw.random() < 0.1 and all("tool_calls" not in message and message["role"] != "tool" for message in talk):
            del talk[2:3]
        return talk


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 25))
def test_every_delivered_turn_is_there_once(seed: int, steps: int) -> None:
    client = Client(random.Random(seed))
    for _ in range(steps):
        client.step()
    session, encode = client.session, ByteTokenizer().encode
    end = 257
    segments = session.segments()
    runs = []
    for segment in segments:
        assert len({len(segment.ids), len(segment.sampled), len(segment.logprobs), len(segment.turn)}) == 1
        assert segment.turn == sorted(segment.turn)
        start = None
        for i, mine in enumerate([*segment.sampled, False]):
            if mine and start is None:
                start = i
            if not mine and start is not None:
                runs.append((tuple(segment.ids[:start]), tuple(segment.ids[start:i])))
                start = None
    wanted = sorted((prompt, (*encode(words), end)) for prompt, words in client.arrived)
    delivered = [record for record in session.calls if not record.disconnected]
    # A turn that nobody got counts as arrived if a later request repeats it, which equal words may do.
    assert len(delivered) >= len(client.arrived)
    assert len(runs) == len(delivered)
    missing = list(runs)
    for one in wanted:
        missing.remove(one)
    lost = {(call.ids, (*encode(words), end)) for call, words in zip(client.policy.calls, client.said, strict=True)}
    assert set(missing) <= lost
    begun = [record for record in delivered if record.cause]
    assert {record.cause for record in begun} <= CAUSES
    assert len(segments) <= len(begun)
    others = {name for name in session.counts if not name.startswith("kept:")} - CAUSES
    assert others <= {"disconnected", "malformed"}


def test_a_turn_that_is_gone_on_from_has_arrived() -> None:
    """The connection broke after the last byte: the client goes on, so it has the answer."""
    client = Client(random.Random(0))
    opening: list[Any] = [SYSTEM, {"role": "user", "content": "fix it"}]
    ticket = Ticket("chat", b"1")
    choice = client.session.answer(ticket, Request(opening)).choices[0]
    client.session.gone(ticket)
    assert client.session.segments() == []
    said = assistant(choice.turn.text, choice.turn.reasoning)
    client.session.answer(Ticket("chat", b"2"), Request([*opening, said, opening[1]]))
    (segment,) = client.session.segments()
    assert sum(segment.sampled) == sum(len(words) + 1 for words in client.said)

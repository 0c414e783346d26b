"""All that one episode sampled, as a tree of calls, and the proof that a prompt goes on from what was sampled.

A request that repeats the messages of an earlier call and its reply continues that call's token ids; nothing is
rendered again. Messages are compared by what they mean: arguments as JSON values, text without outer white space,
without reasoning. A request that says something else opens a new token stream, for a cause that is named.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from forkgym.agents.base import Completion, Segment
from forkgym.agents.gateway.wire import NOT_AN_OBJECT, Message, Refusal, Tool, as_object

StreamKind = Literal["main", "subagent", "side"]
NO_TOOLS = "[]"
_EVIDENCE = 20  # characters of a reply that, found again in an opening message, show that history was summed up


@dataclass(eq=False)
class Node:
    """One sampled turn: the messages and ids that led to it from ``parent``, and its completion.

    ``reply`` is what the client was sent. ``lost`` is True if no client got it. ``cause`` says why the node does not
    continue its parent's stream, or why it began one; it is empty where it continues.
    """

    parent: Node | None
    messages: list[Message]
    reply: Message
    prompt: list[int]
    completion: Completion
    tools: str
    key: bytes
    bare: bytes
    cause: str
    kind: StreamKind
    turn: int = -1
    lost: bool = False
    children: list[Node] = field(default_factory=list["Node"])
    kept: set[str] = field(default_factory=set[str])

    def line(self) -> list[Node]:
        """The nodes from the root to this one."""
        nodes: list[Node] = [self]
        while (parent := nodes[-1].parent) is not None:
            nodes.append(parent)
        return nodes[::-1]

    def history(self) -> list[Message]:
        """All messages up to and including the reply."""
        return [message for node in self.line() for message in (*node.messages, node.reply)]

    def ids(self) -> list[int]:
        """All token ids up to and including the completion."""
        return [id for node in self.line() for id in (*node.prompt, *node.completion.ids)]


@dataclass(frozen=True)
class Place:
    """Where a request belongs: after ``node`` (``None``: nowhere yet) with ``rest`` as its new messages.

    ``keys`` and ``bare`` are the digests of the first 0, 1, 2, ... messages, with and without system messages. ``tip``
    is True if nothing has gone on from the node yet.
    """

    messages: Sequence[Message]
    tools: str
    keys: Sequence[bytes]
    bare: Sequence[bytes]
    node: Node | None
    rest: list[Message]
    tip: bool


class History:
    """The tree. Not safe for use from several threads; ``Session`` holds a lock."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.counts: Counter[str] = Counter()
        self._by_key: dict[bytes, list[Node]] = {}
        self._by_bare: dict[bytes, list[Node]] = {}

    def place(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Place:
        """Where ``messages`` belong. What a client changed in history without changing its meaning is counted."""
        described = json.dumps(list(tools), sort_keys=True) if tools else NO_TOOLS
        keys, bare = _chain(messages, bare=False), _chain(messages, bare=True)
        node, end = self._longest(self._by_key, keys, messages, described)
        if node is not None:
            self._count_kept(node, messages)
        tip = node is not None and not node.children
        return Place(messages, described, keys, bare, node, list(messages[end:]), tip)

    def add(self, place: Place, reply: Message, prompt: list[int], completion: Completion) -> Node:
        """Store one sampled turn. ``prompt`` are the ids that were added to those of ``place.node``."""
        cause, kind = self._classify(place)
        node = Node(
            place.node, place.rest, reply, prompt, completion, place.tools, _link(place.keys[-1], reply),
            _link(place.bare[-1], reply), cause, kind, turn=len(self.nodes),
        )  # fmt: skip
        if cause == "start":
            for earlier in self.nodes:  # what came before the first request with tools was not the task
                earlier.kind = "side"
                if earlier.parent is None:
                    self.counts["side"] += 1
        elif cause:
            self.counts[cause] += 1
        self.nodes.append(node)
        self._by_key.setdefault(node.key, []).append(node)
        self._by_bare.setdefault(node.bare, []).append(node)
        if node.parent is not None:
            node.parent.children.append(node)
        return node

    def segments(self, include: Collection[StreamKind]) -> list[Segment]:
        """One segment per token stream; every sampled token of a delivered turn of kinds ``include`` is in one place.

        A stream that left another one repeats its ids up to there as context, not as sampled.
        """
        streams: list[tuple[Node, Segment]] = []
        taken: dict[Node, Segment] = {}
        for node in self.nodes:
            if node.lost or node.kind not in include:
                continue
            parent = node.parent
            segment = taken.pop(parent, None) if parent is not None else None
            if segment is None:
                segment = Segment()
                segment.append_prompt([*(parent.ids() if parent else []), *node.prompt], node.turn)
                streams.append((node, segment))
            else:
                assert parent is not None
                segment.append_prompt(node.prompt, parent.turn)
            segment.append_completion(node.completion, node.turn)
            taken[node] = segment
        return [segment for _, segment in streams]

    def _longest(
        self, table: Mapping[bytes, list[Node]], keys: Sequence[bytes], messages: Sequence[Message], tools: str | None
    ) -> tuple[Node | None, int]:
        """The node whose history is the longest beginning of ``messages``, and how many messages that is."""
        for end in range(len(messages), 0, -1):
            if messages[end - 1]["role"] != "assistant":
                continue
            found = [node for node in table.get(keys[end], ()) if tools is None or node.tools == tools]
            if found:
                thought = messages[end - 1].get("reasoning_content")
                same = [node for node in found if node.reply.get("reasoning_content") == thought] or found
                return next((node for node in reversed(same) if not node.lost), same[-1]), end
        return None, 0

    def _count_kept(self, node: Node, messages: Sequence[Message]) -> None:
        start = 0
        for step in node.line():
            step.lost = False  # who repeats it has got it
            for old, new in zip((*step.messages, step.reply), messages[start:], strict=False):
                start += 1
                for what in _differences(old, new):
                    if what not in step.kept:
                        step.kept.add(what)
                        self.counts[f"kept:{what}"] += 1

    def _classify(self, place: Place) -> tuple[str, StreamKind]:
        """Why ``place`` begins a stream (empty: it continues one), and what kind of stream it is."""
        node = place.node
        if node is not None:
            if not node.children:
                return "", node.kind
            return "parallel" if place.tip else _divergence(place.rest, _newest(node.children[-1])), node.kind
        twin, _ = self._longest(self._by_key, place.keys, place.messages, None)
        if twin is not None:
            return ("aside", "side") if place.tools == NO_TOOLS else ("tools_changed", twin.kind)
        twin, _ = self._longest(self._by_bare, place.bare, place.messages, place.tools)
        if twin is not None:
            return "system_changed", twin.kind
        if not self.nodes or all(known.tools == NO_TOOLS != place.tools for known in self.nodes):
            return "start", "main"
        return self._opening(place.messages, place.tools)

    def _opening(self, messages: Sequence[Message], tools: str) -> tuple[str, StreamKind]:
        """The cause of a conversation that continues no earlier one."""
        system = _system(messages)
        roots = [n for n in self.nodes if n.parent is None and n.tools == tools and _system(n.messages) == system]
        if not roots:
            return ("side", "side") if tools == NO_TOOLS else ("subagent", "subagent")
        peer = roots[-1]
        cause = _divergence(messages, _newest(peer))
        if cause in ("rewound", "history_edited") and self._summed_up(messages):
            cause = "compaction"
        elif cause == "rewound":  # not even the opening messages are the same
            cause = "restart" if peer.kind == "main" else peer.kind
        return cause, peer.kind

    def _summed_up(self, messages: Sequence[Message]) -> bool:
        """True if the model's own words stand in messages that are not its own, as a summary does."""
        others = "\n".join(message["content"] for message in messages if message["role"] != "assistant")
        replies = (node.reply["content"].strip() for node in self.nodes)
        return any(len(reply) >= _EVIDENCE and reply in others for reply in replies)


def normalise(messages: Sequence[Message]) -> list[Message]:
    """The messages with call ids that do not depend on who made them up, and the name of the tool at each answer.

    Raises ``Refusal`` if there is no message, or an answer to a call that was not made.
    """
    if not messages:
        raise Refusal("malformed", "the conversation is empty: at least one message is needed")
    known: dict[str, tuple[str, str]] = {}
    normal: list[Message] = []
    count = 0
    for i, message in enumerate(messages):
        if "tool_calls" in message:
            calls: list[dict[str, Any]] = []
            for call in message["tool_calls"]:
                known[call["id"]] = (f"call_{count}", call["function"]["name"])
                calls.append({**call, "id": f"call_{count}"})
                count += 1
            message = {**message, "tool_calls": calls}
        elif message["role"] == "tool":
            if message["tool_call_id"] not in known:
                raise Refusal("malformed", f"messages[{i}]: no call {message['tool_call_id']!r} was made before it")
            id, name = known[message["tool_call_id"]]
            message = {**message, "tool_call_id": id, "name": name}
        normal.append(message)
    return normal


def _divergence(new: Sequence[Message], old: Sequence[Message]) -> str:
    """Why ``new`` left ``old``, two continuations of the same node of which neither repeats the other's reply."""
    same = 0
    while same < min(len(new), len(old)) and _link(b"", new[same]) == _link(b"", old[same]):
        same += 1
    if same == len(new):
        return "resampled" if old[same]["role"] == "assistant" else "rewound"
    turns = sum(message["role"] == "assistant" for message in old[same:])
    if old[same]["role"] == "assistant":
        if new[same]["role"] == "assistant":
            later = (_link(b"", message) for message in old[same + 1 :] if message["role"] == "assistant")
            return "compaction" if _link(b"", new[same]) in later else "assistant_edited"
        return "compaction" if turns > 1 else "assistant_dropped"
    if any(message["role"] == "assistant" for message in new[same:]):
        return "history_edited"
    return "rewound"


def _newest(node: Node) -> list[Message]:
    """The messages from ``node`` on, along the newest children."""
    messages = [*node.messages, node.reply]
    while node.children:
        node = node.children[-1]
        messages += [*node.messages, node.reply]
    return messages


def _system(messages: Sequence[Message]) -> list[str]:
    return [str(message["content"]).strip() for message in messages if message["role"] == "system"]


def _chain(messages: Sequence[Message], *, bare: bool) -> list[bytes]:
    """A digest of the first 0, 1, 2, ... messages; ``bare`` leaves out system messages."""
    keys = [b""]
    for message in messages:
        keys.append(keys[-1] if bare and message["role"] == "system" else _link(keys[-1], message))
    return keys


def _link(key: bytes, message: Message) -> bytes:
    """The digest of one more message, by its meaning."""
    digest = hashlib.blake2b(key, digest_size=16)
    for part in _meaning(message):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()


def _meaning(message: Message) -> Iterator[str]:
    yield message["role"]
    yield message["content"].strip()
    for part in message.get("parts", ()):
        yield json.dumps(part, sort_keys=True)
    for call in message.get("tool_calls", ()):
        yield call["function"]["name"]
        yield _plain(call["function"]["arguments"])
    if message["role"] == "tool":
        yield message["tool_call_id"]


def _plain(arguments: str) -> str:
    """Arguments in one spelling: keys sorted, no spaces, 1.0 as 1."""
    value = as_object(arguments)
    if NOT_AN_OBJECT not in value:
        value = json.loads(arguments or "{}", parse_float=_number)
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _number(literal: str) -> float | int:
    value = float(literal)
    return int(value) if value.is_integer() else value


def _differences(old: Message, new: Message) -> Iterator[str]:
    """What differs between two messages of one meaning."""
    if old["content"] != new["content"]:
        yield "whitespace"
    if old.get("reasoning_content", "") != new.get("reasoning_content", ""):
        yield "reasoning"
    pairs = zip(old.get("tool_calls", ()), new.get("tool_calls", ()), strict=False)
    if any(one["function"]["arguments"] != other["function"]["arguments"] for one, other in pairs):
        yield "arguments"

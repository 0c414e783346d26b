"""What a session leaves behind, as the records that all of ForkGym reads."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from forkgym.agents.base import Episode, Status, Step, Turn
from forkgym.agents.gateway.history import StreamKind
from forkgym.agents.gateway.session import ALL, CallRecord, Session
from forkgym.agents.gateway.wire import Message


def steps(calls: Sequence[CallRecord], include: Collection[StreamKind] = ALL) -> list[Step]:
    """One step for each sampled turn that ``Session.segments(include)`` holds, under the turn's number there.

    Its action is what the client was told to do, its observation what the request that went on from it added.
    """
    found: list[Step] = []
    for call in calls:
        node = call.node
        if node is None or call.turn is None or node.lost or node.kind not in include:
            continue
        after = next((child.messages for child in node.children if not child.lost), list[Message]())
        shown = "\n".join(str(message["content"]) for message in after)
        found.append(Step(node.turn, call.text, _action(call.turn, node.kind), shown, 0.0, 0.0, call.seconds))
    return found


def metrics(session: Session) -> dict[str, float]:
    """The session's counts as ``gateway/NAME``, and ``calls``: how many were answered."""
    counts = {f"gateway/{name}": float(count) for name, count in sorted(session.counts.items())}
    return {**counts, "calls": float(sum(call.turn is not None for call in session.calls))}


def episode(session: Session, *, task: str = "", group: str = "", harness: str = "gateway") -> Episode:
    """A session that no environment belongs to, as an unscored episode. Its sampling is empty if it varied."""
    statuses: dict[str, tuple[Status, str]] = {
        "": ("finished", "closed"),
        "calls": ("truncated", "turns"),
        "tokens": ("truncated", "tokens"),
        "context": ("truncated", "context"),
        "cancelled": ("cancelled", "cancelled"),
    }
    status, reason = statuses.get(session.ended, ("failed", "engine"))
    shapes = [call.sampling.shaping for call in session.calls if call.sampling is not None and call.node is not None]
    first = next((call for call in session.calls if call.node is not None), None)
    return Episode(
        session.episode, task, group, harness, session.seed, status, reason,
        prompt=[_without_pixels(message) for message in first.messages] if first is not None else [],
        steps=steps(session.calls),
        segments=session.segments(),
        metrics=metrics(session),
        detail=session.ended if status == "failed" else "",
        sampling=shapes[0] if shapes and all(shape == shapes[0] for shape in shapes) else {},
    )  # fmt: skip


def _without_pixels(message: Message) -> Message:
    """A record names an image by its digest."""
    if "parts" not in message:
        return message
    images = [part["image_url"]["url"] for part in message["parts"] if part["type"] == "image_url"]
    names = [f"sha256:{hashlib.sha256(image.encode()).hexdigest()}" for image in images]
    return {"role": message["role"], "content": message["content"], "images": names}


def _action(turn: Turn, kind: str) -> Mapping[str, Any]:
    action: dict[str, Any] = {"calls": [{"tool": call.name, "arguments": call.arguments} for call in turn.calls]}
    if turn.malformed:
        action["wrong"] = turn.malformed
    return action if kind == "main" else {**action, "kind": kind}

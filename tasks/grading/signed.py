"""The host's side of ``guest/channel.py``: events of a run that shares its process with submitted code."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from typing import Any

from forkgym.sandboxes.base import ExecResult
from forkgym.tasks.grading.guest.channel import sign

_GUEST = "forkgym.tasks.grading.guest"


def program(names: tuple[str, ...], job: dict[str, Any]) -> tuple[str, bytes]:
    """The text that starts a guest program, and what it reads on standard input: these modules, and its job."""
    sources = {f"{_GUEST}.{name}": source(name) for name in names}
    return source("boot"), json.dumps({"boot": "", "sources": sources, "job": job}).encode()


def source(name: str) -> str:
    """The text of one guest module."""
    return (files(_GUEST) / f"{name}.py").read_text("utf-8")


def events(ended: ExecResult, key: str) -> tuple[list[dict[str, Any]], bool]:
    """The signed events in order, up to the first line that is not the next one; and whether such a line came."""
    signer = hashlib.blake2b(key=bytes.fromhex(key), digest_size=16)
    found: list[dict[str, Any]] = []
    lines = ended.stdout.split(b"\n")
    unfinished = lines.pop()  # cut off by a kill, or by a forger: nothing stands after a last line
    for line in lines:
        mark, _, body = line.partition(b" ")
        if mark != sign(signer, body) or json.loads(body)["number"] != len(found):
            return found, True
        found.append(json.loads(body))
    return found, bool(unfinished) and not ended.timed_out

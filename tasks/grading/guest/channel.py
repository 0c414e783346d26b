"""The result channel of a test run that shares its process with submitted code.

Every line is numbered and signed. A key that submitted code digs out of this process still signs, so this makes a
forgery hard and loud, not impossible.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from typing import Any

Say = Callable[..., None]


def open_channel(key: str) -> Say:
    """Take standard output for events, and give what tests print standard error instead.

    ``say(event, **more)`` writes one line. No descriptor is inherited by programs that tests start.
    """
    fd = os.dup(1)
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the key came this way, and could be read again
    signer = hashlib.blake2b(key=bytes.fromhex(key), digest_size=16)
    count = 0

    def say(event: str, **more: Any) -> None:
        nonlocal count
        body = json.dumps({"event": event, "number": count, **more}).encode("utf-8", "replace")
        count += 1
        line = sign(signer, body) + b" " + body + b"\n"
        while line:
            line = line[os.write(fd, line) :]

    return say


def sign(signer: Any, body: bytes) -> bytes:
    """The signature of one line, in hex."""
    fresh = signer.copy()
    fresh.update(body)
    return fresh.hexdigest().encode()

"""The process that holds submitted code: it imports modules of the working directory and calls their functions.

It has no terminal, no output and no secrets; whatever it says comes back as plain data over one socket.
"""

from __future__ import annotations

import importlib
import os
import resource
import socket
import sys
import types
from typing import Any

from forkgym.tasks.grading.guest.codec import NotPlain, decode, encode, receive, send


def main(descriptor: int, workdir: str, memory: int | None) -> None:
    """Answer requests until the runner closes the channel. ``memory`` bounds the address space in bytes."""
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    os.chdir(workdir)
    sys.path[:] = [workdir] + [entry for entry in sys.path if entry]
    send(channel, {"number": 0})
    while True:
        request = receive(channel)
        reply = answer(request)
        reply["number"] = request["number"]
        send(channel, reply)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Do what is asked; an exception of submitted code is an answer."""
    try:
        module = importlib.import_module(request["module"])
        if request["do"] == "import":
            return {"kind": "done"}
        thing = getattr(module, request["name"])
        if request["do"] == "call":
            arguments = [decode(item) for item in request["arguments"]]
            named = {key: decode(item) for key, item in request["named"].items()}
            return {"kind": "value", "value": encode(thing(*arguments, **named))}
        if isinstance(thing, types.ModuleType):
            return {"kind": "module"}
        if callable(thing):
            return {"kind": "call"}
        return {"kind": "value", "value": encode(thing)}
    except NotPlain as error:
        return {"kind": "not plain", "message": str(error)}
    except BaseException as error:  # SystemExit and KeyboardInterrupt of submitted code end nothing but the call
        return {"kind": "raised", "types": _names(error), "message": _text(error)}


def _names(error: BaseException) -> list[str]:
    return [kind.__name__ for kind in type(error).__mro__]


def _text(error: BaseException) -> str:
    try:
        return str(error)[:2000]
    except Exception as broken:
        return f"(its message raised {type(broken).__name__})"

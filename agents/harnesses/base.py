"""What an adapter says about an agent program that we did not write: how to install, start and read it.

An adapter is a ``Harness``: data and two small functions. The program runs unmodified in the agent's sandbox, without
a network; the only thing it can reach is the gateway, as plain HTTP on the sandbox's own loopback.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

ROOT = (
    "/opt/forkgym"  # in the sandbox: where installed harnesses, their interpreters and the gateway's socket are shown
)
PORT = 47017  # in the sandbox: where the gateway answers on loopback
CPU = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())  # as packages of npm name it

Dialect = Literal["chat", "responses", "messages", "gemini"]


@dataclass(frozen=True)
class Place:
    """What an adapter needs to know about one episode.

    ``root``: the installed folder, in the sandbox; ``node``, ``python``: the command lines that start its interpreters.
    ``url``: the episode's own base URL, without ``/v1``. ``home`` is the user's home, ``work`` the task's directory.
    """

    root: str
    url: str
    key: str
    model: str
    task: str
    home: str
    work: str
    node: tuple[str, ...] = ()
    python: tuple[str, ...] = ()


@dataclass(frozen=True)
class Launch:
    """A command line to run in the task's directory, variables for it, and files (absolute path: text) it reads."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Harness:
    """An agent program and how to run it.

    - ``packages``: what to install, with versions, from the registry of ``manager``; none for a program that the
      image has. ``python``: the version that a
      ``pip`` harness needs (empty: that of ForkGym itself); ``node``: whether one of ``npm`` needs Node.js.
    - ``launch``: how to start it on one task.
    - ``shell``: the tool call (name, arguments) by which its model runs a shell command; ``done``: the call by which
      the model ends the work, ``None`` if an answer without a call does. Only the conformance check uses them.
    - ``dialect``: what it speaks to the model. ``prompt_tokens``: about what its own prompt costs, so that a user
      knows which model it fits.
    - ``host``: the text of a Python program that plays it from the host, if it can; see ``host.py``.
    - ``exit_codes``: those of an ordinary end.
    """

    name: str
    manager: Literal["pip", "npm"]
    packages: tuple[str, ...]
    dialect: Dialect
    launch: Callable[[Place], Launch]
    shell: Callable[[str], tuple[str, Mapping[str, Any]]]
    done: tuple[str, Mapping[str, Any]] | None = None
    python: str = ""
    node: bool = True
    prompt_tokens: int = 0
    exit_codes: tuple[int, ...] = (0,)
    licence: str = ""
    host: str = ""

"""The environment of commands: no terminal, and nothing that would wait for a person."""

from __future__ import annotations

from forkgym.errors import ConfigError
from forkgym.sandboxes.base import SandboxSpec

USERS = {"root": (0, 0, "/root"), "agent": (1000, 1000, "/home/agent")}  # by name: uid, gid, home
_BASE = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "SHELL": "/bin/bash",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GIT_EDITOR": "true",
    "EDITOR": "false",
    "VISUAL": "false",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
}


def user_ids(name: str) -> tuple[int, int]:
    """The uid and gid of a user of the image. Raises ``ConfigError``."""
    if name not in USERS:
        raise ConfigError(f"user is {name!r}, whom the image does not have; known: {', '.join(USERS)}")
    return USERS[name][:2]


def environment(spec: SandboxSpec, user: str | None = None) -> dict[str, str]:
    """The variables that a command of ``user`` starts with."""
    name = user or spec.user
    return {**_BASE, "HOME": USERS[name][2], "USER": name, "LOGNAME": name, **spec.env}

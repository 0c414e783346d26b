"""``forkgym gateway``: the gateway by itself, for programs anywhere."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

from forkgym.agents.records import EpisodeWriter
from forkgym.agents.registry import make_format
from forkgym.cli.output import err, out
from forkgym.cli.players import loaded
from forkgym.errors import ConfigError
from forkgym.registry import resolve

TEXT = "text"
_PARTS = {
    "gateway": "forkgym.agents.gateway.server:Gateway",
    "visitors": "forkgym.agents.gateway.visitors:Visitors",
    "record": "forkgym.agents.gateway.record:episode",
}


def serve_gateway(
    policy: str,
    *,
    host: str,
    port: int | None,
    socket: Path | None,
    format: str,
    model_name: str,
    concurrency: int,
    seed: int,
    out_file: Path | None,
) -> int:
    """Serve until interrupted. What clients sampled is written when their episodes end.

    The format ``text`` hands messages on to an endpoint, which needs no token ids.
    """
    extras = dict.fromkeys(_PARTS, "gateway")
    make, hosting, record = (resolve("part of the gateway", name, _PARTS, extras) for name in _PARTS)
    if out_file is not None and out_file.is_dir():
        raise ConfigError(f"--out {out_file} is a folder; name the file that gets the records, such as runs/mine.jsonl")
    with ExitStack() as stack:
        found = stack.enter_context(loaded(policy, concurrency))
        chat = None if format == TEXT else make_format(found.agent.get("format", format), found.opened.tokenizer)
        where = {"socket": socket} if socket is not None else {"host": host, "port": 8800 if port is None else port}
        gateway = stack.enter_context(
            make(found.opened.policy, chat, model=model_name, concurrency=concurrency, **where)
        )
        writer = stack.enter_context(EpisodeWriter(out_file)) if out_file is not None else None

        def ended(session: object) -> None:
            if writer is not None:
                writer.write(record(session))

        visitors = hosting(gateway, ended, seed=seed)
        stack.callback(visitors.close)
        address = gateway.url or socket
        how = "text only: nothing can be trained on" if chat is None else chat.name
        out.print(f"Serving {policy} ({how}) at {address}. Ctrl-C ends it.", soft_wrap=True)
        if gateway.url:
            hint = f"OPENAI_BASE_URL={address}/v1 ANTHROPIC_BASE_URL={address}; an episode each: {address}/e/NAME"
            err.print(hint, soft_wrap=True)
        threading.Event().wait()
    return 0

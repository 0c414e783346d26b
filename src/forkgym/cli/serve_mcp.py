"""``forkgym serve-mcp``: one episode for an MCP client on standard input and output."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

from forkgym.cli.output import err
from forkgym.envs.core import CodingEnv
from forkgym.errors import MissingExtraError
from forkgym.tasks.loader import load


def serve_mcp(task: str, *, sandbox: str, seed: int, turns: int | None, out: Path | None) -> int:
    """Serve until the client submits or hangs up. Exit code 0 if the episode was scored, 1 if it was not."""
    try:
        import anyio

        from forkgym.envs.mcp import serve
    except ModuleNotFoundError as error:
        raise MissingExtraError("serving over MCP needs the package 'mcp': pip install 'forkgym[mcp]'") from error
    tasks = load(task)
    chosen = tasks.ids[random.Random(seed).randrange(len(tasks))]
    env = CodingEnv(tasks, sandbox=sandbox, max_turns=turns)
    try:
        anyio.run(partial(serve, env, chosen, seed))
        result = _result(env, chosen, seed)
    finally:
        env.close()
    # Standard output belongs to the protocol.
    err.print_json(json.dumps(result))
    if out is not None:
        out.write_text(json.dumps(result) + "\n", encoding="utf-8")
    return 0 if result["reward"] is not None else 1


def _result(env: CodingEnv, task: str, seed: int) -> dict[str, Any]:
    outcome = env.outcome
    assert outcome is not None
    return {
        "task": task,
        "seed": seed,
        "status": outcome.status,
        "reason": outcome.reason,
        "reward": outcome.reward,
        "resolved": None if outcome.verdict is None else outcome.verdict.resolved,
        "turns": sum(kind == "action" for kind, _ in env.transcript),
    }

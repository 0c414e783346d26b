"""``forkgym serve-mcp`` with the official client, as another program would use it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from mcp import ClientSession, StdioServerParameters, stdio_client

TASK = "swe/tiny/clamp/upper-bound"
SERVE = ["-m", "forkgym.cli.main", "serve-mcp", TASK, "--seed", "3", "--out"]
VIEW = {"path": "clamp.py", "first": 5, "last": 5}
FIX = {
    "command": "str_replace",
    "path": "clamp.py",
    "old_str": "high:\n        return value",
    "new_str": "high:\n        return high",
}


def talk(out: Path, script: Callable[[ClientSession, Any], Awaitable[None]]) -> dict[str, Any]:
    """Run ``script`` with a client of a fresh server; returns what the server wrote to ``out``."""

    async def run() -> None:
        server = StdioServerParameters(command=sys.executable, args=[*SERVE, str(out)])
        with open(out.with_suffix(".err"), "w") as errors:
            async with (
                stdio_client(server, errlog=errors) as (reading, writing),
                ClientSession(reading, writing) as client,
            ):
                await script(client, await client.initialize())

    anyio.run(run)
    return json.loads(out.read_text())


def test_a_client_solves_the_task(tmp_path: Path) -> None:
    said: dict[str, Any] = {}

    async def script(client: ClientSession, hello: Any) -> None:
        said["instruction"] = hello.instructions
        said["tools"] = [(tool.name, tool.input_schema["type"]) for tool in (await client.list_tools()).tools]
        calls = [("view", VIEW), ("view", {"file": "x"}), ("edit", FIX), ("look", {}), ("submit", {}), ("view", VIEW)]
        said["answers"] = [await client.call_tool(name, arguments) for name, arguments in calls]

    result = talk(tmp_path / "end.json", script)
    assert "it should return 10" in said["instruction"]
    assert said["tools"] == [(name, "object") for name in ("bash", "view", "edit", "submit")]
    texts = [answer.content[0].text for answer in said["answers"]]
    assert [answer.is_error for answer in said["answers"]] == [False, True, False, True, False, True]
    assert texts[0] == "     5\t        return value"
    assert "misses the argument 'path'" in texts[1]
    assert "unknown tool 'look'" in texts[3]
    assert texts[4] == "Submitted."
    assert texts[5] == "The episode is over (finished: submitted)."
    assert (result["task"], result["status"], result["reward"], result["resolved"]) == (TASK, "finished", 1.0, True)
    assert result["turns"] == 5


def test_no_answer_tells_the_verdict(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def script(client: ClientSession, hello: Any) -> None:
        seen.append(hello)
        seen.append(await client.list_tools())
        seen.append(await client.call_tool("submit", {}))

    assert talk(tmp_path / "end.json", script)["reward"] == 0.0
    text = "".join(message.model_dump_json() for message in seen)
    assert not [word for word in ("resolved", "reward", "verdict", "test_") if word in text]


def test_a_client_that_hangs_up_has_submitted(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, *SERVE, str(tmp_path / "end.json")], stdin=subprocess.DEVNULL, capture_output=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, b"")
    result = json.loads((tmp_path / "end.json").read_text())
    assert (result["status"], result["reason"], result["reward"]) == ("finished", "submitted", 0.0)

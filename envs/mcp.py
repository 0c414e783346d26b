"""The tools of one episode over the Model Context Protocol. Needs the extra ``mcp``.

    anyio.run(serve, env, "swe/tiny/clamp/upper-bound", 7)

The environment stays on this side: a client sees the tools, the instruction as the server's own instructions, and the
text of observations, never a verdict.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import anyio.to_thread
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from forkgym import __version__
from forkgym.envs.core import CodingEnv


async def serve(env: CodingEnv, task: str, seed: int) -> None:
    """Play one episode of ``task`` with the client on standard input and output, until it hangs up or submits.

    A client that hangs up without ``submit`` has ended its work: what is there is submitted. Read ``env.outcome``
    afterwards. Calls run one after the other. Raises as ``env.reset`` does.
    """
    observation, _ = await anyio.to_thread.run_sync(partial(env.reset, seed=seed, options={"task": task}))
    server = make_server(env, observation["text"])
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
    if env.outcome is None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(partial(env.step, {"tool": "submit", "arguments": {}}))


def make_server(env: CodingEnv, instruction: str) -> Server[Any]:
    """An MCP server over the running episode of ``env``."""
    one_at_a_time = anyio.Lock()

    async def list_tools(context: object, params: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool["function"]) for tool in env.tools])

    async def call_tool(context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        call = {"tool": params.name, "arguments": params.arguments or {}}
        async with one_at_a_time:
            if env.outcome is not None:
                return _said(f"The episode is over ({env.outcome.status}: {env.outcome.reason}).", error=True)
            # A call that was begun is finished, even if the client no longer waits: the episode counts it.
            observation, *_, info = await anyio.to_thread.run_sync(env.step, call)
        return _said(observation["text"], error=info["tool_error"])

    return Server(
        "forkgym", version=__version__, instructions=instruction, on_list_tools=list_tools, on_call_tool=call_tool
    )


def _described(function: dict[str, Any]) -> types.Tool:
    return types.Tool(name=function["name"], description=function["description"], input_schema=function["parameters"])


def _said(text: str, *, error: bool) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=error)

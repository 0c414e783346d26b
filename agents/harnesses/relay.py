"""Runs inside the sandbox, by itself: the gateway's socket on loopback, and the harness as its child.

    python3 relay.py SOCKET PORT COMMAND...

It ends when the harness ends, with the same exit code, and takes the harness's processes along. SIGTERM ends both.
Only the standard library, and nothing of ForkGym: it is copied into the sandbox as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

_CHUNK = 1 << 16


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction until its end, and tell the other side of the end."""
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def _serve(socket: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        try:
            far_reader, far_writer = await asyncio.open_unix_connection(socket)
        except OSError:  # no gateway any more: the harness sees a connection that closes
            writer.close()
            return
        ways = [asyncio.create_task(_pump(reader, far_writer)), asyncio.create_task(_pump(far_reader, writer))]
        await ways[1]  # the answer's end is the end
        ways[0].cancel()
        for end in (far_writer, writer):
            end.close()


async def main(socket: str, port: int, command: list[str]) -> None:
    """Serve until ``command`` has ended; then exit with its code, 128 + N for a death by signal N."""
    loop = asyncio.get_running_loop()
    await asyncio.start_server(lambda r, w: _serve(socket, r, w), "127.0.0.1", port)
    child = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, start_new_session=True)

    def stop() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)

    loop.add_signal_handler(signal.SIGTERM, stop)
    code = await child.wait()
    stop()  # what it started in its own process group goes with it
    os._exit(code if code >= 0 else 128 - code)  # open connections lead nowhere any more


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))

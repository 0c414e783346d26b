"""A harness that lives on the host: its program runs here, and the commands of its model in the sandbox.

The program is the adapter's ``host`` text. It gets the arguments URL, KEY, MODEL, TASK, and two file descriptors: it
writes ``{"command": ..., "timeout": seconds, "env": {...}}`` in a line to the first, and reads a line
``{"output": ..., "returncode": ..., "exception_info": ...}`` from the second.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forkgym.agents.base import ChatFormat, Policy
from forkgym.agents.errors import HarnessError
from forkgym.agents.harnesses import runtime
from forkgym.agents.harnesses.agent import MODEL, End, HarnessAgent, safe
from forkgym.agents.harnesses.base import Harness
from forkgym.agents.harnesses.doors import START, gateway_class
from forkgym.agents.harnesses.watch import Watch
from forkgym.envs.core import CodingEnv
from forkgym.errors import ConfigError
from forkgym.sandboxes.base import ExecResult, Mount

if TYPE_CHECKING:
    from forkgym.agents.gateway.server import Gateway
    from forkgym.agents.gateway.session import Session

_SHELL = ("/bin/sh", "-c", 'exec /bin/sh -c "$0" 2>&1')
_OUTPUT = 1 << 20  # bytes of what the program says that are looked at


class HostAgent(HarnessAgent):
    """As ``HarnessAgent``, but nothing is shown in the sandbox: it sees only the commands."""

    def __init__(self, format: ChatFormat | None, *, harness: str | Harness, **options: Any) -> None:
        super().__init__(format, harness=harness, **options)
        if not self.harness.host:
            raise ConfigError(f"harness {self.harness.name!r} runs in the sandbox only; leave @host out")

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """Nothing."""
        return ()

    @contextmanager
    def _open(self, policy: Policy) -> Generator[tuple[Gateway, str]]:
        with gateway_class()(policy, self.format, port=0) as gateway:
            yield gateway, ""

    def _work(self, env: CodingEnv, session: Session, socket: str, task: str) -> End:
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="forkgym-host-") as scratch:
            log = Path(scratch, "log")
            commands, answers = os.pipe(), os.pipe()
            process = self._start(session, task, Path(scratch), (commands[1], answers[0]))
            os.close(commands[1])
            os.close(answers[0])
            seconds = env.left.seconds
            late = threading.Event()
            clock = threading.Timer(threading.TIMEOUT_MAX if seconds is None else seconds, lambda: _stop(process, late))
            clock.daemon = True
            clock.start()
            try:
                with (
                    os.fdopen(commands[0]) as asked,
                    os.fdopen(answers[1], "w") as told,
                    Watch(session, self._stall, lambda: _stop(process)) as watch,
                ):
                    _serve(env, asked, told)
                    code = process.wait()
            finally:
                clock.cancel()
                _stop(process)
                process.wait()
            said = log.read_bytes()[-_OUTPUT:]
        return End(ExecResult(code, said, b"", time.monotonic() - start, timed_out=late.is_set()), watch.stalled)

    def _start(self, session: Session, task: str, scratch: Path, pipes: tuple[int, int]) -> subprocess.Popen[bytes]:
        program = scratch / "program.py"
        program.write_text(self.harness.host)
        python = runtime.command(self._installed.version)
        place = [session.base_url, session.key, MODEL, safe(task), *map(str, pipes)]
        variables = {"HOME": str(scratch), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        with open(scratch / "log", "wb") as log:
            return subprocess.Popen(
                [python, "-I", START, self._installed.folder / "site", program, *place],
                cwd=scratch, env=variables, pass_fds=pipes, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip


def _serve(env: CodingEnv, asked: Any, told: Any) -> None:
    """Run what the program asks for, until it hangs up. ``SandboxError`` escapes."""
    for line in asked:
        try:
            wanted = json.loads(line)
            command, env_vars = str(wanted["command"]), dict(wanted.get("env", {}))
            timeout = float(wanted["timeout"])
        except (ValueError, KeyError, TypeError) as error:
            raise HarnessError(f"the program on the host asked for {line[:200]!r}: {error}") from error
        left = env.left.seconds
        most = timeout if left is None else max(0.001, min(timeout, left))
        done = env.box.exec((*_SHELL, command), cwd=env.task.workdir, env=env_vars, timeout=most)
        late = f"An error occurred while executing the command: timed out after {most:g} seconds"
        answer = {
            "output": done.stdout.decode(errors="replace"),
            "returncode": -1 if done.timed_out else done.exit_code,
            "exception_info": late if done.timed_out else "",
        }
        with suppress(BrokenPipeError):
            told.write(json.dumps(answer) + "\n")
            told.flush()


def _stop(process: subprocess.Popen[bytes], late: threading.Event | None = None) -> None:
    """End the program and what it started."""
    if late is not None:
        late.set()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)

"""The runner's side of submitted code: modules whose functions forward calls to the worker process."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import importlib
import importlib.machinery
import json
import os
import signal
import socket
import subprocess
import sys
import time
import types
from collections.abc import Callable, Sequence
from typing import Any, cast

from forkgym.tasks.grading.guest.codec import Broken, NotPlain, decode, encode, receive, send

PR_SET_CHILD_SUBREAPER = 36
KILL_ROUNDS = 50
# PYTHONHASHSEED: submitted code that walks a set gives the same answer in every run.
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}


# On a busy machine little processor time passes in much wall time; code that sleeps uses none of it.
WALL_PER_CPU = 5
START_SECONDS = 60.0
NOT_STARTED = 70
MAX_HANGS = 2


class WorkerLost(BaseException):
    """Submitted code died, hung or answered nonsense. No ``except Exception`` of a test can take it for a result."""


class Submitted(Exception):
    """An exception of submitted code that is no built-in ``Exception``."""


class Worker:
    """One process that holds submitted code, started when needed and again after it was lost.

    A call may take ``call_timeout`` seconds of processor time, and five times as much wall time. Code that hung twice
    is not asked again.
    """

    def __init__(self, start: list[str], call_timeout: float) -> None:
        self._start = start
        self._timeout = call_timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._number = 0
        self._hangs = 0
        self._ran = False
        self.lost = ""
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def ask(self, do: str, module: str, **more: Any) -> Any:
        """One request. Returns ``(kind, value)``; raises what submitted code raised, or ``WorkerLost``."""
        if self._hangs >= MAX_HANGS:
            raise self._lose("not called any more, because submitted code hung before")
        self._number += 1
        try:
            channel = self._connect()
            channel.settimeout(WALL_PER_CPU * self._timeout)
            send(channel, {"do": do, "module": module, "number": self._number, **more})
            reply = receive(channel, self._clock())
            if reply.get("number") != self._number:
                raise Broken("an answer that nobody asked for")
            kind = reply.get("kind")
            value = decode(reply.get("value"))
        except TimeoutError as error:
            self._hangs += 1
            raise self._lose(f"submitted code gave no answer within {self._timeout:g} s") from error
        except (Broken, OSError, MemoryError) as error:
            raise self._lose(f"submitted code was lost: {error}") from error
        if kind == "raised":
            raise rebuild(reply.get("types"), reply.get("message"))
        if kind == "not plain":
            raise TypeError(str(reply.get("message")))
        return kind, value

    def close(self) -> None:
        """Kill the worker and whatever it started, daemons included: this process is their reaper."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            _kill(self._process.pid, group=True)
            self._process.wait()
            self._process = None
        for _ in range(KILL_ROUNDS):
            orphans = children()
            for pid in orphans:
                _kill(pid)
            if not orphans:
                return
            for pid in orphans:
                _reap(pid)

    def _connect(self) -> socket.socket:
        if self._channel is None:
            try:
                self._channel = self._begin()
            except (Broken, OSError) as error:
                if self._ran:  # what ran before may be in the way
                    raise
                sys.stderr.write(f"the process for submitted code did not start: {error}\n")
                sys.stderr.flush()
                os._exit(NOT_STARTED)
            self._ran = True
        return self._channel

    def _begin(self) -> socket.socket:
        mine, its = socket.socketpair()
        with its:
            self._process = subprocess.Popen(
                [*self._start, str(its.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                cwd="/",
                env=ENVIRONMENT,
                start_new_session=True,
            )
        end = time.monotonic() + START_SECONDS
        receive(mine, lambda: time.monotonic() > end)
        return mine

    def _clock(self) -> Callable[[], bool]:
        """A question that is answered yes once a call that begins now has had its time."""
        process = self._process
        pid = process.pid if process else 0
        wall, used = time.monotonic() + WALL_PER_CPU * self._timeout, cpu_seconds(pid) + self._timeout
        return lambda: time.monotonic() > wall or cpu_seconds(pid) > used

    def _lose(self, reason: str) -> WorkerLost:
        self.lost = reason
        self.close()
        return WorkerLost(reason)


class ProxyModule(types.ModuleType):
    """Stands for a submitted module inside a hidden test; functions and plain data can be taken from it."""

    def __init__(self, name: str, worker: Worker) -> None:
        super().__init__(name)
        self.__path__ = []
        self._worker = worker

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        kind, value = self._worker.ask("get", self.__name__, name=name)
        if kind == "module":
            return importlib.import_module(f"{self.__name__}.{name}")
        return forward(self._worker, self.__name__, name) if kind == "call" else value


class Finder:
    """Finds and loads hidden helpers from memory, and proxies for submitted modules.

    It has no base class: ``importlib.abc`` would take a tenth of the runner's start.
    """

    def __init__(self, worker: Worker, submitted: Sequence[str], hidden: dict[str, str]) -> None:
        self._worker, self._submitted, self._hidden = worker, frozenset(submitted), dict(hidden)
        for name in hidden:
            while "." in name:
                name = name.rpartition(".")[0]
                self._hidden.setdefault(name, "")  # a folder of tests is a package, with or without an __init__.py

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Ours or nobody's; ``path`` and ``target`` play no part."""
        if fullname in self._hidden or fullname.partition(".")[0] in self._submitted:
            return importlib.machinery.ModuleSpec(fullname, cast(Any, self), is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """An empty module of the right kind."""
        return types.ModuleType(spec.name) if spec.name in self._hidden else ProxyModule(spec.name, self._worker)

    def exec_module(self, module: types.ModuleType) -> None:
        """Run the hidden source here, or have the worker import the submitted module."""
        name = module.__name__
        if name in self._hidden:
            exec(compile(self._hidden[name], f"<hidden {name}>", "exec"), module.__dict__)
        else:
            self._worker.ask("import", name)


def forward(worker: Worker, module: str, name: str) -> Callable[..., Any]:
    """A function that calls ``module.name`` in the worker."""

    def call(*arguments: Any, **named: Any) -> Any:
        try:
            packed = [encode(item) for item in arguments], {key: encode(item) for key, item in named.items()}
        except NotPlain as error:
            raise TypeError(f"{module}.{name}: a hidden test may pass plain data only: {error}") from error
        return worker.ask("call", module, name=name, arguments=packed[0], named=packed[1])[1]

    call.__name__ = call.__qualname__ = name
    return call


def rebuild(names: Any, message: Any) -> Exception:
    """The nearest built-in ``Exception`` of what submitted code raised, with its message."""
    text = message if isinstance(message, str) else ""
    known: list[str] = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []  # pyright: ignore
    for name in known:
        kind = getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, Exception) and kind not in (Exception, Warning):
            try:
                return kind(text)
            except TypeError:  # such as UnicodeDecodeError, which needs more than a message
                continue
    return Submitted(f"{known[0] if known else 'unknown'}: {text}")


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children() -> list[int]:
    """Processes whose parent is this one."""
    mine = str(os.getpid())
    found: list[int] = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[1].decode() == mine:
                found.append(int(entry))
    return found


def _kill(pid: int, group: bool = False) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        (os.killpg if group else os.kill)(pid, signal.SIGKILL)


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def start_line(boot: str, sources: dict[str, str], workdir: str, memory: int | None) -> list[str]:
    """The command of a worker, without the descriptor that comes last."""
    return [sys.executable, "-s", "-B", "-c", boot, json.dumps(sources), json.dumps([workdir, memory])]

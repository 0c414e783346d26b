"""What a sandbox's first process does for its owner: it starts commands, opens files, and kills so that nobody escapes.

Requests come over one socket from the owner; its end of file means that the owner is gone, and with this process
goes everything in the sandbox. Each request brings its own reply socket as the first descriptor.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import socket
import stat
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from forkgym.sandboxes.guest import processes, syscalls, wire

_CHANGING = ("exec", "open", "mkdir", "symlink")  # requests that must not fall between two roots
_DRAIN_CHUNK = 1 << 16
_STACK = 256 << 10  # bytes
_RESET_SIGNALS = (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)


class Server:
    """The request loop. One thread at a time; nothing in it may block.

    Make it in the main thread, where Python handles signals; any thread may then ``serve``.
    """

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._commands: dict[int, tuple[str, socket.socket]] = {}
        self._started: dict[str, tuple[int, float]] = {}
        self._drains: set[int] = set()
        self._stopped: list[int] = []
        self._quiet = False
        self._deferred: list[tuple[dict[str, Any], list[int]]] = []
        self._devnull = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self._proc_device = os.stat("/proc").st_dev
        self._poll = select.poll()
        self._wake, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _note)
        self._poll.register(self._requests, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)

    def serve(self) -> NoReturn:
        """Answer until the client is gone."""
        while True:
            for fd, _ in self._poll.poll():
                if fd == self._wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                    self._reap()
                elif fd in self._drains:
                    self._drain(fd)
                else:
                    self._answer()

    def _answer(self) -> None:
        received = wire.receive(self._requests)
        if received is None:
            os._exit(0)
        message, fds = received
        if self._quiet and message["op"] in _CHANGING:
            self._deferred.append((message, fds))
        else:
            self._perform(message, fds)

    def _perform(self, message: dict[str, Any], fds: list[int]) -> None:
        reply = socket.socket(fileno=fds.pop(0))
        try:
            getattr(self, "_do_" + message["op"])(message, fds, reply)
        except Exception as error:
            with contextlib.suppress(OSError):
                wire.send(reply, wire.error(error))
        finally:
            wire.close_all(fds)

    def _do_exec(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        """Start a command. Descriptors: stdout, stderr, then stdin if ``stdin``, then those for ``extra`` numbers."""
        sources = {1: fds[0], 2: fds[1], 0: fds[2] if message["stdin"] else self._devnull}
        sources |= dict(zip(message["extra"], fds[2 + message["stdin"] :], strict=True))
        begin = processes.now()
        pid = spawn(message["argv"], message["env"], message["cwd"], sources)
        self._commands[pid] = (message["id"], reply)
        self._started[message["id"]] = (pid, begin)
        with contextlib.suppress(OSError):
            # When memory runs out, the kernel should take a command before this process.
            _write(f"/proc/{pid}/oom_score_adj", "500")

    def _do_kill(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        """Kill command ``id`` and all that it started, or only what it started at or after ``since``.

        Spared are our other commands, and those of another server, ``keep``.
        """
        if self._withdraw(message["id"]):
            wire.send(reply, {"left": 0, "cwd": None})
            return
        pid, since = self._started.get(message["id"], (0, 0.0))
        if message["since"] is not None:
            since = message["since"]
        cwd = _cwd(pid) if pid else None
        if pid:
            os.kill(pid, signal.SIGKILL)
        keep = [*(other for other in self._commands if other != pid), *message.get("keep", [])]
        left = processes.eliminate(since, keep, self._reap) if pid else 0
        wire.send(reply, {"left": left, "cwd": cwd})

    def _withdraw(self, name: str) -> bool:
        """Take back a command that waits for the end of a freeze: else it would start after it was killed."""
        for waiting in self._deferred:
            message, fds = waiting
            if message["op"] == "exec" and message["id"] == name:
                self._deferred.remove(waiting)
                with contextlib.suppress(OSError), socket.socket(fileno=fds.pop(0)) as reply:
                    wire.send(reply, {"code": -signal.SIGKILL})
                wire.close_all(fds)
                return True
        return False

    def _do_open(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        """Open a regular file or a directory and hand the descriptor out."""
        path, flags = message["path"], message["flags"]
        writing = flags & (os.O_WRONLY | os.O_RDWR)
        quiet = flags | os.O_NONBLOCK | os.O_NOCTTY
        try:
            fd = syscalls.openat2(path, quiet, message["mode"])
        except FileNotFoundError:
            if not message["parents"]:
                raise
            os.makedirs(os.path.dirname(path), exist_ok=True)
            fd = syscalls.openat2(path, quiet, message["mode"])
        try:
            found = os.fstat(fd)
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                raise OSError(errno.EINVAL, "not a regular file")
            if found.st_dev == self._proc_device:
                # Opened by this process, its own entries would be readable and writable.
                raise OSError(errno.EACCES, "files of /proc are not served; read them with a command")
            if writing:
                with contextlib.suppress(PermissionError):
                    os.fchmod(fd, message["mode"])
            wire.send(reply, {"ok": True}, [fd])
        finally:
            os.close(fd)

    def _do_mkdir(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        os.makedirs(message["path"], exist_ok=True)
        with contextlib.suppress(PermissionError):
            os.chmod(message["path"], message["mode"])
        wire.send(reply, {"ok": True})

    def _do_symlink(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(message["path"])
        os.symlink(message["target"], message["path"])
        wire.send(reply, {"ok": True})

    def _do_drain(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        """Keep reading what background processes still print, so that they neither block nor die of it."""
        for fd in fds:
            os.set_blocking(fd, False)
            self._drains.add(fd)
            self._poll.register(fd, select.POLLIN)
        fds.clear()

    def _do_quiesce(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        """Tell which processes run besides the idle shells named in ``idle``, stop them, and begin nothing new."""
        self._quiet = True
        idle = {self._started[name][0] for name in message["idle"] if name in self._started}
        others = [pid for pid in processes.table() if pid not in idle]
        self._stopped = processes.stop_all(idle, message["patience"]) if others else []
        wire.send(reply, {"others": others})

    def _do_resume(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        processes.resume(self._stopped)
        self._stopped = []
        self._quiet = False
        wire.send(reply, {"ok": True})
        deferred, self._deferred = self._deferred, []
        for request in deferred:
            self._perform(*request)

    def _do_kill_others(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        idle = [self._started[name][0] for name in message["idle"] if name in self._started]
        wire.send(reply, {"left": processes.eliminate(0, idle, self._reap)})

    def _do_writers(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        wire.send(reply, {"writers": processes.writers()})

    def _do_commands(self, message: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        wire.send(reply, {"pids": list(self._commands)})

    def _drain(self, fd: int) -> None:
        try:
            if os.read(fd, _DRAIN_CHUNK):
                return
        except BlockingIOError:
            return
        self._poll.unregister(fd)
        self._drains.discard(fd)
        os.close(fd)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            name, reply = self._commands.pop(pid, (None, None))
            if name is None or reply is None:
                continue
            with contextlib.suppress(OSError):
                wire.send(reply, {"code": os.waitstatus_to_exitcode(status)})
            reply.close()
            self._started.pop(name, None)


def serve_aside(server: Server) -> None:
    """Serve in a second thread, so that running out of memory cannot kill this process.

    Commands are born in the group of the thread that starts them. But the memory of a process is charged to the group
    of its first thread, and only processes whose first thread is in a group are killed for it.
    """

    def serve() -> None:
        try:
            server.serve()
        finally:
            os._exit(1)

    _thread.stack_size(_STACK)
    _thread.start_new_thread(serve, ())
    # The end of a command should wake the thread that serves, not this one first.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})


def forget_imports() -> None:
    """From here on "/" belongs to the sandbox: nothing may be imported from it."""
    for searched in (sys.path, sys.meta_path, sys.path_hooks):
        searched.clear()
    sys.path_importer_cache.clear()


def spawn(argv: list[str], env: dict[str, str], cwd: str, sources: dict[int, int]) -> int:
    """Start a program in its own session with ``sources`` as its descriptors; returns its id.

    No Python code runs between this process and the program.
    Raises the ``OSError`` of the failed step; ``filename`` is the program or the working directory.
    """
    high = {target: _above(source) for target, source in sources.items()}
    actions = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in high.items()]
    try:
        os.chdir(cwd)
        program = _find(argv[0], env.get("PATH", os.defpath))
        return os.posix_spawn(
            program, argv, env, file_actions=actions, setsid=True, setsigmask=[], setsigdef=_RESET_SIGNALS
        )
    finally:
        os.chdir("/")
        wire.close_all(list(high.values()))


def spawn_after(
    first: Callable[[], None], argv: list[str], env: dict[str, str], cwd: str, sources: dict[int, int]
) -> int:
    """As ``spawn``, but ``first`` runs in the new process before the program; slower, since the process is copied."""
    listen, told = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            first()
            os.setsid()
            os.chdir(cwd)
            program = _find(argv[0], env.get("PATH", os.defpath))
            for target, source in {target: _above(source) for target, source in sources.items()}.items():
                os.dup2(source, target)
            for number in _RESET_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            os.execve(program, argv, env)
        except BaseException as error:
            os.write(told, json.dumps(wire.error(error)).encode())
        finally:
            os._exit(127)
    os.close(told)
    with open(listen, "rb") as file:
        problem = file.read()
    if problem:
        os.waitpid(pid, 0)
        told_error = json.loads(problem)
        raise OSError(told_error["errno"], told_error["error"])
    return pid


def _above(fd: int) -> int:
    """A copy out of the way of all numbers that a command may ask for."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64)


def _find(program: str, path: str) -> str:
    if "/" in program:
        return program
    for directory in path.split(":"):
        candidate = os.path.join(directory or ".", program)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise FileNotFoundError(errno.ENOENT, "command not found", program)


def _note(number: int, frame: object) -> None:
    """A handler must exist for the wake-up descriptor to be written."""


def _cwd(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return None


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)

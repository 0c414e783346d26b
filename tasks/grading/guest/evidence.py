"""Signs that submitted code works on its own grading, seen from inside the process that it shares with the tests.

What is looked for: parts of the test framework replaced by submitted code, its reading of hidden tests, and its search
through the objects of this process.
"""

from __future__ import annotations

import builtins
import hashlib
import inspect
import os
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

from forkgym.tasks.grading.guest.channel import Say, open_channel

# Code of these opens files in the name of whoever called it.
_TRANSPARENT = ("pathlib", "codecs", "tokenize", "fileinput", "shutil", "io", "runpy")
# Often replaced for good reasons, and of no use to a forger.
_LOOSE = frozenset({"__import__", "open", "print", "input", "breakpoint", "exit", "quit", "help", "_"})


class Evidence:
    """``found`` lists what is beyond doubt, ``notes`` what honest code does, too; each thing once.

    ``changed`` are the submitted files, ``hidden`` maps hidden files to their SHA-256, both relative to ``workdir``.
    """

    def __init__(self, workdir: str, changed: Sequence[str], hidden: dict[str, str]) -> None:
        self.found: list[str] = []
        self.notes: list[str] = []
        self._workdir = os.path.realpath(workdir)
        self._changed = {os.path.join(self._workdir, path) for path in changed}
        self._hidden = {os.path.join(self._workdir, path): digest for path, digest in hidden.items()}
        self._names = {os.path.basename(path) for path in self._hidden}
        self._known: list[tuple[Any, Any, str, Any, Any]] = []  # holder, its names, name, value, code

    def accuse(self, text: str) -> None:
        """Remember what is beyond doubt."""
        if text not in self.found:
            self.found.append(text)

    def submitted(self, file: Any) -> bool:
        """Is this a file that the submission changed?"""
        return isinstance(file, str) and (file in self._changed or os.path.realpath(file) in self._changed)

    def remember(self, *prefixes: str) -> None:
        """Remember the parts of these modules, so far as they are loaded and not themselves under test."""
        for name, module in list(sys.modules.items()):
            if any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes):
                file = getattr(module, "__file__", None) or ""
                if not os.path.realpath(file).startswith(self._workdir + os.sep):
                    for holder, part, value in _parts(module):
                        code = getattr(value, "__code__", None)
                        self._known.append((holder, holder.__dict__, part, value, code))
        for part, value in vars(builtins).items():
            if callable(value) and part not in _LOOSE:
                self._known.append((builtins, builtins.__dict__, part, value, None))

    def compare(self) -> None:
        """Note each remembered part that submitted code has replaced."""
        for holder, names, part, value, code in self._known:
            now = names.get(part)
            if now is value and (code is None or value.__code__ is code):
                continue
            if self._foreign(now):
                name = holder.__name__ if isinstance(holder, types.ModuleType) else holder.__qualname__
                self.accuse(f"submitted code replaced {name}.{part}")
        for hook in (sys.gettrace(), sys.getprofile()):
            if hook is not None and self._foreign(hook):
                self.accuse("submitted code traces the tests")

    def check_function(self, function: Any, test: str) -> bool:
        """Was a test, below its decorators, written in a file that is not submitted?"""
        genuine = not self._foreign(inspect.unwrap(getattr(function, "__func__", function)))
        if not genuine:
            self.accuse(f"submitted code replaced the test {test}")
        return genuine

    def _foreign(self, value: Any) -> bool:
        """Made by submitted code, as far as can be told; code of installed packages and of the repository is not."""
        value = getattr(value, "__func__", value)
        code = getattr(value, "__code__", None)
        if code is not None:
            return self.submitted(code.co_filename) or not os.path.isfile(code.co_filename)
        if isinstance(value, type):
            return self.submitted(getattr(sys.modules.get(value.__module__), "__file__", None))
        kind = sys.modules.get(type(value).__module__)
        return value is None or kind is None or kind is builtins or self.submitted(getattr(kind, "__file__", None))

    def check_source(self, path: str) -> bool:
        """Is the hidden file at ``path`` what the grader placed? A file that is not hidden is not asked about."""
        digest = self._hidden.get(os.path.realpath(path))
        if digest is None:
            return True
        try:
            with open(path, "rb") as file:
                same = hashlib.sha256(file.read()).hexdigest() == digest
        except OSError:
            same = False
        if not same:
            self.accuse(f"the hidden file {os.path.relpath(path, self._workdir)} was changed while the tests ran")
        return same

    def watch(self) -> None:
        """From now on, see which hidden files submitted code opens, and its search for the grader's objects.

        Tests hand files of theirs to the code that they test; no test does so while a module is imported.
        """
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: Any) -> None:
        if event == "open" and isinstance(arguments[0], (str, bytes)):
            path = os.fsdecode(arguments[0])
            if os.path.basename(path) in self._names and (callers := self._submitted_callers()):
                where = os.path.realpath(path)
                if where in self._hidden:
                    text = f"submitted code opened the hidden file {os.path.relpath(where, self._workdir)}"
                    if "<module>" in callers:
                        self.accuse(text + " while it was imported")
                    elif text not in self.notes:
                        self.notes.append(text)
        elif event in ("gc.get_objects", "gc.get_referrers") and self._submitted_callers():
            self.accuse("submitted code searched the objects of the test process")

    def _submitted_callers(self) -> list[str]:
        """The functions of submitted code that asked for what happens now, innermost first; none if others did."""
        frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
        found: list[str] = []
        while frame is not None:
            if self.submitted(frame.f_code.co_filename):
                found.append(frame.f_code.co_name)
            elif frame.f_globals.get("__name__", "").partition(".")[0] not in _TRANSPARENT:
                break
            frame = frame.f_back
        return found


def begin(job: dict[str, Any], version: str, *watched: str) -> tuple[Say, Evidence]:
    """Open the channel and say so; from now on submitted code can be imported, and is watched.

    ``job``: keys key (which is taken out), workdir, path, changed, hidden. ``watched``: modules to remember.
    """
    say = open_channel(job.pop("key"))
    if "" in sys.path:
        sys.path.remove("")
    os.chdir(job["workdir"])
    evidence = Evidence(job["workdir"], job["changed"], job["hidden"])
    if watched:
        evidence.remember(*watched)
    evidence.watch()
    say("ready", version=version)
    sys.path[:0] = job["path"]
    os.environ["PYTHONPATH"] = os.pathsep.join(job["path"])  # of programs that tests start
    return say, evidence


def _parts(module: types.ModuleType) -> Iterator[tuple[Any, str, Any]]:
    """(holder, name, value) of the functions and classes of a module, and of the methods of its own classes."""
    for name, value in list(vars(module).items()):
        if isinstance(value, type):
            yield module, name, value
            if value.__module__ == module.__name__:
                for part, method in list(vars(value).items()):
                    if isinstance(method, (types.FunctionType, property, staticmethod, classmethod)):
                        yield value, part, method
        elif isinstance(value, types.FunctionType):
            yield module, name, value

"""What a submission may not bring to its own grading: it is dropped, so that the base version, or nothing, is there.

Dropped are files where hidden tests stand, files below the directories of the tests, whatever an interpreter or a test
runner would load by itself, and installed packages. All else is the agent's work and is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

from forkgym.tasks.base import Submission

# Only above a hidden test: `django/test/` and the like hold sources.
TEST_DIRECTORIES = frozenset({"test", "tests", "__tests__", "spec", "specs"})
_INSTALLED = frozenset({"__pycache__", "site-packages", "dist-packages", "node_modules", ".venv", "venv", ".git"})
_BEGINNINGS = (".forkgym-",)  # what a grader places


def screen(
    submission: Submission,
    hidden: Collection[str],
    configuration: Collection[str] = (),
    manifests: Collection[str] = (),
    test_paths: Iterable[str] | None = None,
    solution: Collection[str] = (),
) -> tuple[Submission, dict[str, str]]:
    """The submission without what it may not bring, and the reason for each path that was dropped.

    ``configuration`` and ``manifests`` are patterns of file names (``conftest.py``) or, with a slash, of paths
    (``.cargo/*``, at any depth; a link called ``.cargo`` leads to such files, too). ``test_paths`` are directories or
    files of the tests; by default the outermost directory named tests, test, spec and the like above each hidden file.
    ``solution`` are the paths that the reference solution changes: of these, manifests are kept.
    """
    roots = roots_of_tests(hidden) if test_paths is None else frozenset(test_paths)
    reasons: dict[str, str] = {}
    for path in submission.changes:
        reason = _reason(path, hidden, roots)
        if not reason and _matches(path, configuration):
            reason = "loaded by the test runner or the interpreter by itself"
        if not reason and path not in solution and _matches(path, manifests):
            reason = "decides what the tests are built from, and the reference solution leaves it as it is"
        if reason:
            reasons[path] = reason
    # A file cannot stand where a directory is needed.
    needed = {above for path in (*hidden, *reasons) for above in _above(path)}
    for path, change in submission.changes.items():
        if path in needed and not change.deleted:
            reasons.setdefault(path, "a directory that grading needs")
    kept = {path: change for path, change in submission.changes.items() if path not in reasons}
    return replace(submission, changes=kept), dict(sorted(reasons.items()))


def roots_of_tests(hidden: Iterable[str]) -> frozenset[str]:
    """The outermost directory above each hidden file that is named as directories of tests are."""
    named = ([above for above in _above(path) if _name(above) in TEST_DIRECTORIES] for path in hidden)
    return frozenset(directories[0] for directories in named if directories)


def _reason(path: str, hidden: Collection[str], roots: Collection[str]) -> str:
    if path in hidden:
        return "a hidden test stands there"
    if path in roots or any(above in roots for above in _above(path)):
        return "part of the tests"
    if inside := next((part for part in path.split("/")[:-1] if part in _INSTALLED), None):
        return f"inside {inside}"
    if _name(path) in _INSTALLED or path.endswith((".pyc", ".pyo")) or path.startswith(_BEGINNINGS):
        return "nothing that is submitted"
    return ""


def _matches(path: str, patterns: Iterable[str]) -> bool:
    whole = "/" + path
    return any(
        fnmatchcase(whole, "*/" + pattern) or fnmatchcase(whole, "*/" + pattern.removesuffix("/*"))
        if "/" in pattern
        else fnmatchcase(_name(path), pattern)
        for pattern in patterns
    )


def _above(path: str) -> list[str]:
    """The directories above a path, outermost first."""
    parts = path.split("/")
    return ["/".join(parts[:length]) for length in range(1, len(parts))]


def _name(path: str) -> str:
    return path.rpartition("/")[2]

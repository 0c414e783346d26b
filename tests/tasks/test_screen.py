"""What is left of a submission when it is graded: the work, and nothing that would work on the grading."""

from __future__ import annotations

import pytest

from forkgym.tasks.base import FileChange, Submission
from forkgym.tasks.grading.screen import roots_of_tests, screen

HIDDEN = ("tests/unit/test_a.py", "tests/data/a.json")


def kept(paths, hidden=HIDDEN, **more) -> set[str]:
    changes = {path: FileChange(b"x") for path in paths}
    return set(screen(Submission(changes), hidden, **more)[0].changes)


@pytest.mark.parametrize(
    ("hidden", "roots"),
    [
        (["tests/unit/test_a.py", "tests/b.py"], {"tests"}),
        (["pkg/tests/test_a.py"], {"pkg/tests"}),
        (["src/test/java/tests/A.java"], {"src/test"}),
        (["pkg/a_test.go", "test_b.py"], set()),
        (["web/__tests__/a.js", "spec/a_spec.rb"], {"web/__tests__", "spec"}),
    ],
)
def test_the_tests_are_where_hidden_ones_stand(hidden: list[str], roots: set[str]) -> None:
    assert roots_of_tests(hidden) == roots


def test_sources_are_kept_and_tests_are_not() -> None:
    work = {"a.py", "django/test/client.py", "pkg/tests/helper.py", "pyproject.toml", "sub/tests.py"}
    theirs = {"tests/unit/test_a.py", "tests/helper.py", "tests/unit/new.py", "tests"}
    assert kept(work | theirs) == work


def test_test_paths_say_what_the_tests_are() -> None:
    assert kept(["tests/helper.py", "testing/x.py", "a.py"], test_paths=["testing"]) == {"tests/helper.py", "a.py"}
    assert kept(["tests/unit/test_a.py"], test_paths=[]) == set()


@pytest.mark.parametrize(
    "path",
    [
        *("a.pyc", "x/__pycache__/a.py", ".venv/lib/a.py", "lib/site-packages/a.pth", "node_modules/x/index.js"),
        *(".git/hooks/pre-commit", ".forkgym-12.ini", "node_modules"),
    ],
)
def test_installed_and_compiled_files_are_never_work(path: str) -> None:
    assert kept([path]) == set()


def test_patterns_match_names_anywhere_and_paths_at_any_depth() -> None:
    never = ("conftest.py", "*.pth", ".cargo/*")
    paths = [
        "conftest.py",
        "a/b/conftest.py",
        "a.pth",
        ".cargo/config.toml",
        "sub/.cargo/config",
        "my.cargo/x",
        "conf.py",
    ]
    assert kept(paths, configuration=never) == {"my.cargo/x", "conf.py"}


def test_a_link_in_place_of_a_directory_is_what_it_leads_to() -> None:
    links = {path: FileChange(None, 0o777, "elsewhere") for path in (".cargo", "sub/x.egg-info", "my.cargo")}
    left, _ = screen(Submission(links), (), configuration=(".cargo/*", "*.egg-info/*"))
    assert set(left.changes) == {"my.cargo"}


def test_a_manifest_counts_only_if_the_solution_changes_it() -> None:
    paths = ["go.mod", "sub/go.mod", "vendor/a/b.go"]
    assert kept(paths, manifests=("go.mod", "vendor/*")) == set()
    assert kept(paths, manifests=("go.mod", "vendor/*"), solution={"go.mod": b""}) == {"go.mod"}


def test_a_file_cannot_stand_where_a_directory_is_needed() -> None:
    changes = {"sub": FileChange(b"x"), "sub/conftest.py": FileChange(None), "sub/a.py": FileChange(None)}
    left, dropped = screen(Submission(changes), (), configuration=("conftest.py",))
    assert set(left.changes) == {"sub/a.py"}
    assert dropped == {
        "sub": "a directory that grading needs",
        "sub/conftest.py": "loaded by the test runner or the interpreter by itself",
    }

"""Synthetic tasks of a repository of our own: known patches, sound proofs, and why mistakes were dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forkgym import tasks
from forkgym.sandboxes import backend
from forkgym.tasks.builders.synthesis import SynthOptions, synthesize
from forkgym.tasks.errors import BuildError
from forkgym.tasks.grading.fidelity import faithful
from forkgym.tasks.submission import of_files
from forkgym.tasks.verify import prove, state_of
from forkgym.tasks.workspace import Bases


def working(repository: Any, tmp_path: Path) -> Path:
    """The repository as it was before its last two commits: all its tests pass but the tossed coin."""
    clone = tmp_path / "tally"
    repository.git("clone", "-q", "--no-local", ".", str(clone))
    repository.git("-C", str(clone), "checkout", "-q", repository.shas["rename"])
    return clone


def test_mistakes_that_tests_notice(repository: Any, tmp_path: Path, bases: Bases) -> None:
    out, clone = tmp_path / "out", working(repository, tmp_path)
    options = SynthOptions(limit=3, seed=3, repeats=2)
    report = synthesize(str(clone), out, backend("local"), options)
    found = tasks.load(out)
    assert (report["kept"], len(found)) == (3, 3)
    assert set(report["dropped"]) <= {"no test notices", "same as another", "breaks too much", "tests take too long"}
    for task in found:
        assert state_of(task) == "fresh"
        ((path, gold),) = task.oracle.items()
        assert gold == (clone / path).read_bytes() != task.files[path]
        assert not set(task.hidden) & set(task.files)
        assert {test.partition("::")[0] for test in task.grading.tests} == set(task.hidden)
        assert task.instruction.startswith("Something in this repository doesn't work as it should.")
        assert path not in task.instruction
        assert faithful(task, of_files(task.oracle)) == 1.0
    assert len({task.params["mistakes"][0] for task in found}) == 3
    again = synthesize(str(clone), out, backend("local"), options)
    assert again["candidates"] == report["candidates"]
    proof = prove(found[0], bases, repeats=1)
    assert (proof.oracle, proof.nothing, proof.problems) == (1.0, 0.0, ())


def test_two_mistakes_in_a_task(repository: Any, tmp_path: Path) -> None:
    out, clone = tmp_path / "out", working(repository, tmp_path)
    report = synthesize(str(clone), out, backend("local"), SynthOptions(limit=1, combine=2, seed=1, repeats=2))
    (task,) = tasks.load(out)
    assert report["kept"] == 1
    assert len(task.params["mistakes"]) == 2
    assert {path: (clone / path).read_bytes() for path in task.oracle} == dict(task.oracle)
    title = next(item["title"] for item in report["candidates"] if item["task"])
    assert title.count(";") == 1


def test_what_cannot_be_synthesized_is_refused(repository: Any, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="unknown kind of synthetic task 'mutations'; did you mean 'mutation'"):
        synthesize(str(repository.path), tmp_path / "out", backend("local"), SynthOptions(kind="mutations"))
    with pytest.raises(BuildError, match="not a git repository"):
        synthesize(str(tmp_path), tmp_path / "out", backend("local"))
    assert not (tmp_path / "out").exists()

"""AutoBuilder in other languages: one fix each, in a repository made here, with the real tool in a sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forkgym import tasks
from forkgym.sandboxes import backend
from forkgym.sandboxes.base import SandboxSpec
from forkgym.sandboxes.images.build import build
from forkgym.sandboxes.images.recipe import read
from forkgym.tasks.builders.autobuild import Options, build_from_repo
from forkgym.tasks.errors import BuildError

GO = {
    "go.mod": "module host.invalid/tally\n\ngo 1.18\n",
    "tally.go": "package tally\n\nfunc Half(n int) int {\n\treturn n * 2\n}\n",
    "tally_test.go": 'package tally\n\nimport "testing"\n\nfunc TestZero(t *testing.T) {\n'
    '\tif Half(0) != 0 {\n\t\tt.Error("zero")\n\t}\n}\n',
}
GO_FIX = {
    "tally.go": "package tally\n\nfunc Half(n int) int {\n\treturn n / 2\n}\n",
    "tally_test.go": GO["tally_test.go"] + '\nfunc TestHalf(t *testing.T) {\n\tt.Run("even", func(t *testing.T) {\n'
    '\t\tif got := Half(8); got != 4 {\n\t\t\tt.Errorf("Half(8) = %d", got)\n\t\t}\n\t})\n}\n',
}
GO_NEW = {
    "twice.go": "package tally\n\nfunc Twice(n int) int {\n\treturn n + n\n}\n",
    "twice_test.go": 'package tally\n\nimport "testing"\n\nfunc TestTwice(t *testing.T) {\n'
    '\tif Twice(4) != 8 {\n\t\tt.Error("twice")\n\t}\n}\n',
}
HEAD = 'import test from "node:test";\nimport assert from "node:assert";\nimport { half } from "./tally.mjs";\n\n'
NODE = {
    "package.json": '{"name": "tally", "type": "module", "devDependencies": {"linter": "1"}}\n',
    "tally.mjs": "export const half = (n) => n * 2;\n",
    "tally.test.mjs": HEAD + 'test("zero", () => assert.equal(half(0), 0));\n',
}
NODE_FIX = {
    "tally.mjs": "export const half = (n) => n / 2;\n",
    "tally.test.mjs": NODE["tally.test.mjs"] + 'test("half", async (t) => {\n'
    '  await t.test("even", () => assert.equal(half(8), 4));\n});\n',
}  # fmt: skip


def save(repo: Any, *versions: dict[str, str]) -> Any:
    for number, files in enumerate(versions):
        repo.write(files)
        repo.save(str(number), f"Change {number}")
    return repo


def needs(program: str) -> None:
    with backend("local").create(SandboxSpec()) as box:
        if not box.exec(f"command -v {program}").ok:
            pytest.skip(f"the image 'host' has no {program}; .ci/run installs what this test needs")


def test_go(another: Any, tmp_path: Path) -> None:
    needs("go")
    repo = save(another, GO, GO_FIX, GO_NEW)
    report = build_from_repo(str(repo.path), tmp_path / "out", backend("local"), Options(repeats=2))
    assert (report["language"], report["kept"], report["dropped"]) == ("Go", 2, {"first commit": 1})
    found = tasks.load(tmp_path / "out")
    fix, new = found[f"tally/{repo.shas['1'][:10]}"], found[f"tally/{repo.shas['2'][:10]}"]
    assert fix.grading.tests[-1] == "host.invalid/tally::TestZero"
    assert set(fix.proof["fail_to_pass"]) == {"host.invalid/tally::TestHalf", "host.invalid/tally::TestHalf/even"}
    assert "TestHalf/even: " in fix.instruction
    assert "Half(8) = 16" in fix.instruction
    # Without the new function no test of the package can be compiled.
    names = ("TestTwice", "TestHalf", "TestHalf/even", "TestZero")
    assert set(new.proof["fail_to_pass"]) == {f"host.invalid/tally::{name}" for name in names}
    assert "undefined: Twice" in new.instruction


def test_node_over_an_image_of_ones_own(another: Any, tmp_path: Path) -> None:
    needs("node")
    build(read("{schema: 1, name: ground, from: host, steps: [{run: touch /opt/ground}]}", "ground.yaml", tmp_path))
    repo = save(another, NODE, NODE_FIX)
    report = build_from_repo(str(repo.path), tmp_path / "out", backend("local"), Options(repeats=2, image="ground"))
    assert (report["language"], report["kept"], report["image"]) == ("JavaScript", 1, "ground")
    (task,) = tasks.load(tmp_path / "out")
    assert task.image == "ground"
    assert "tally.test.mjs > zero" in task.grading.tests
    assert "tally.test.mjs > half > even" in task.proof["fail_to_pass"]
    assert "16 == 4" in task.instruction


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (GO | {"go.mod": GO["go.mod"] + "\nrequire host.invalid/other v1.0.0\n"}, r"go\.mod requires other modules"),
        (NODE | {"package.json": '{"dependencies": {"other": "1"}}\n'}, r"package\.json has dependencies"),
        (NODE | {"tally.test.mjs": "it();\n"}, "no test uses node:test"),
    ],
)
def test_what_other_packages_are_needed_for_is_refused(
    another: Any, tmp_path: Path, files: dict[str, str], says: str
) -> None:
    later = {path: text + "\n" for path, text in files.items() if path.startswith("tally")}
    repo = save(another, files, later)
    with pytest.raises(BuildError, match=says):
        build_from_repo(str(repo.path), tmp_path / "out", backend("local"))

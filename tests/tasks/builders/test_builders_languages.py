"""AutoBuilder in other languages: one fix each, in a repository made here, with the real tool in a sandbox."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from forkgym import tasks
from forkgym.sandboxes import backend
from forkgym.sandboxes.base import Mount, SandboxSpec
from forkgym.sandboxes.images.build import build
from forkgym.sandboxes.images.recipe import read
from forkgym.tasks.base import FileChange
from forkgym.tasks.builders.autobuild import Options, build_from_repo
from forkgym.tasks.builders.history import UnfitCommit
from forkgym.tasks.builders.javascript import Jest, Vitest
from forkgym.tasks.builders.projects import project_of
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


CARGO = {
    "Cargo.toml": '[package]\nname = "tally"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/lib.rs": "pub fn half(n: u32) -> u32 {\n    n * 2\n}\n",
    "tests/halves.rs": "use tally::half;\n\n#[test]\nfn zero() {\n    assert_eq!(half(0), 0);\n}\n",
}
CARGO_FIX = {
    "src/lib.rs": "pub fn half(n: u32) -> u32 {\n    n / 2\n}\n",
    "tests/halves.rs": CARGO["tests/halves.rs"] + "\nmod more {\n    #[test]\n    fn even() {\n"
    "        assert_eq!(tally::half(8), 4);\n    }\n}\n",
}
NODE_MODULES = Path(os.environ.get("FORKGYM_TEST_NODE_MODULES", "/var/tmp/forkgym-test-js/node_modules"))


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


def test_rust(another: Any, tmp_path: Path) -> None:
    needs("cargo")
    repo = save(another, CARGO, CARGO_FIX)
    report = build_from_repo(str(repo.path), tmp_path / "out", backend("local"), Options(repeats=2))
    assert (report["language"], report["kept"], report["dropped"]) == ("Rust", 1, {"first commit": 1})
    (task,) = tasks.load(tmp_path / "out")
    assert set(task.hidden) == {"tests/halves.rs"}
    assert set(task.grading.tests) == {"halves::zero", "halves::more::even"}
    assert task.proof["fail_to_pass"] == ["halves::more::even"]
    # What an agent builds is not in the directory that is compared.
    assert task.env["CARGO_TARGET_DIR"] == "/tmp/target"


MANIFEST = """{
  "name": "tally",
  "devDependencies": {
    "%s": "^1.0.0", "eslint": "8", "ts-thing": "2.x", "helper": "latest", "linked": "file:../linked"
  },
  "dependencies": {"small": "~3.1"}
}"""


@pytest.mark.parametrize("project", [Jest(), Vitest()], ids=["jest", "vitest"])
def test_what_packages_with_a_test_runner_of_their_own_need(project: Jest) -> None:
    files = {"package.json": FileChange((MANIFEST % project.runner).encode())}
    assert project_of(files).runner == project.runner
    first, second, third = project.environments(files, "0.1")
    runner = f"{project.runner}@^1.0.0"
    assert first.steps[0] == {"npm": sorted(["helper", runner, "small@~3.1", "ts-thing@2.x"])}
    assert second.steps[0] == {"npm": sorted(["helper", runner, "small@~3.1", "ts-thing@2.x"])}
    assert third.steps[0] == {"npm": sorted([runner, "small@~3.1", "ts-thing@2.x"])}
    assert "'*/node_modules/tally'" in first.steps[1]["run"]  # a release of the package itself may hold the fix
    far = json.dumps({"devDependencies": {project.runner: "1"}, "dependencies": {"far": "host.invalid/far.git"}})
    with pytest.raises(UnfitCommit, match=r"depends on far host\.invalid/far\.git"):
        list(project.environments({"package.json": FileChange(far.encode())}, "0.1"))


@pytest.mark.parametrize("project", [Jest(), Vitest()], ids=["jest", "vitest"])
def test_the_tests_of_a_global_runner_are_collected(project: Jest) -> None:
    needs("npm")
    if not (NODE_MODULES / project.runner).is_dir():
        pytest.skip(f"no {project.runner} in {NODE_MODULES}; .ci/run installs it")
    files = {"package.json": FileChange((MANIFEST % project.runner).encode())}
    (link,) = next(project.environments(files, "0.1")).commands
    module = 'import { it } from "vitest";\n' if project.runner == "vitest" else ""
    place = Mount(str(NODE_MODULES), "/opt/js/lib/node_modules")
    with backend("local").create(SandboxSpec(mounts=(place,), env={"NPM_CONFIG_PREFIX": "/opt/js"})) as box:
        box.write_file("a.test.js", f'{module}it("one", () => {{}});\nit("two", () => {{}});\n'.encode())
        box.write_file("b.test.js", b"it(")
        box.write_file("package.json", b"{}")
        assert box.exec(link).ok
        assert box.exec("test -L node_modules/jest/package.json || test -L node_modules/jest").ok
        assert project.collect(box, "/work", ["a.test.js"]) == ["a.test.js > one", "a.test.js > two"]
        with pytest.raises(UnfitCommit, match="tests not collected"):
            project.collect(box, "/work", ["a.test.js", "b.test.js"])


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
        (CARGO | {"Cargo.toml": CARGO["Cargo.toml"] + '[dev-dependencies]\nx = "1"\n'}, "Cargo.toml depends on x"),
        (CARGO | {"Cargo.toml": '[workspace]\nmembers = ["a"]\n'}, "no package, only a workspace"),
    ],
)
def test_what_other_packages_are_needed_for_is_refused(
    another: Any, tmp_path: Path, files: dict[str, str], says: str
) -> None:
    later = {path: text + "\n" for path, text in files.items() if path.startswith(("tally", "src/", "tests/"))}
    repo = save(another, files, later)
    with pytest.raises(BuildError, match=says):
        build_from_repo(str(repo.path), tmp_path / "out", backend("local"))

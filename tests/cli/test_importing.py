"""``forkgym tasks import`` and ``export``: folders that are whole, and reasons for what is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forkgym.cli.main import main
from forkgym.tasks.loader import load

FILES = {
    "task.toml": 'schema_version = "1.4"\n',
    "instruction.md": "Make done.\n",
    "environment/Dockerfile": "FROM x\nWORKDIR /app\n",
    "tests/test.sh": "#!/bin/sh\nif [ -e done ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
    "solution/solve.sh": "#!/bin/sh\ntouch done\n",
}


def write(root: Path, **changes: str) -> None:
    for path, text in {**FILES, **{key.replace("_", "."): value for key, value in changes.items()}}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def test_in_proof_and_out_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "in" / "make-done")
    ours, back = tmp_path / "ours", tmp_path / "back"
    assert (
        main(["tasks", "import", "harbor", str(tmp_path / "in"), "--out", str(ours), "--image", "host", "--json"]) == 0
    )
    assert json.loads(capsys.readouterr().out) == {
        "imported": {"make-done": str(ours / "make-done")}, "refused": {},
    }  # fmt: skip
    assert main(["tasks", "verify", str(ours), "--repeats", "1", "--write"]) == 0
    (task,) = load(ours)
    assert (task.proof["oracle"], task.proof["nothing"]) == (1.0, 0.0)
    assert main(["tasks", "export", "harbor", str(ours / "make-done"), str(back)]) == 0
    assert {path: (back / path).read_text() for path in FILES} == FILES


def test_what_cannot_be_imported_is_said_and_the_rest_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "in" / "good")
    write(tmp_path / "in" / "bad", task_toml="[environment]\ngpus = 1\n")
    arguments = ["tasks", "import", "harbor", str(tmp_path / "in"), "--out", str(tmp_path / "ours"), "--image", "host"]
    assert main(arguments) == 1
    told = capsys.readouterr()
    assert "refused: bad: " in told.err
    assert "environment.gpus: a sandbox here has no such thing" in told.err.replace("\n", " ")
    assert "1 of 2 tasks imported" in told.out
    assert [path.name for path in (tmp_path / "ours").iterdir()] == ["good"]
    assert main(arguments) == 1  # and what is there is not written over
    assert "is there already" in capsys.readouterr().err.replace("\n", " ")


def test_a_pattern_of_many_cannot_be_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "export", "harbor", "swe/tiny/clamp", str(tmp_path / "x")]) == 2
    assert "'swe/tiny/clamp' names 9 tasks; give one" in capsys.readouterr().err


def test_a_bundled_task_can(tmp_path: Path) -> None:
    target = tmp_path / "x"
    assert main(["tasks", "export", "harbor", "swe/tiny/clamp/upper-bound", str(target), "--base", "acme/python"]) == 0
    assert (target / "environment/Dockerfile").read_text().startswith("FROM acme/python\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--build", "--image", "host"), "--build makes the task's own image, and --image names another"),
        (("--build-network", "bridge"), "--build-network does not fit"),
    ],
)
def test_options_that_do_not_fit(
    tmp_path: Path, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "in")
    assert main(["tasks", "import", "harbor", str(tmp_path / "in"), "--out", str(tmp_path / "o"), *arguments]) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")

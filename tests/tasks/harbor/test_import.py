"""Harbor task directories: what they become, what comes back, and what is refused by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forkgym import tasks
from forkgym.sandboxes.base import Limits
from forkgym.tasks import leaks
from forkgym.tasks.errors import TaskFormatError
from forkgym.tasks.verify import prove
from forkgym.tasks.workspace import Bases

Make = Callable[..., Path]


def taken(root: Path, **options: Any) -> Any:
    given: dict[str, Any] = {"image": "host", **options}
    return tasks.from_harbor(root, **given)[0]


def test_a_directory_is_a_task(make: Make) -> None:
    task = taken(make())
    assert (task.id, task.family, task.split, task.user, task.submits) == (
        "acme/greet",
        "harbor",
        "test",
        "root",
        "everything",
    )
    assert task.instruction == "Write the greeting of greet.txt in capitals into out/greet.txt."
    assert task.files == {"greet.txt": b"hello\n", "bin/tool": b"#!/bin/sh\necho tool\n"}
    assert task.executables == ("bin/tool",)
    assert (task.workdir, task.env) == ("/app", {"LEVEL": "3", "MOOD": "quite good"})
    assert task.setup[1:] == ('mkdir out && echo "$LEVEL $MOOD" > out/state',)
    assert (task.grading.runner, task.grading.timeout, task.budget.seconds) == ("harbor", 20.0, 120.0)
    assert task.limits == Limits(memory=512 << 20, pids=4096, cpu=1.0, disk=10 << 30, open_files=65536)


def test_oracle_and_nothing(make: Make, bases: Bases) -> None:
    proof = prove(taken(make()), bases, repeats=1)
    assert (proof.oracle, proof.nothing, proof.problems) == (1.0, 0.0, ())


def test_what_the_dockerfile_says_is_there(make: Make, bases: Bases) -> None:
    with bases.box(taken(make())) as box:
        assert box.exec("id -un; pwd; cat out/state; bin/tool; ls /tests /solution").stdout.decode().split("\n") == [
            "root", "/app", "3 quite good", "tool", "",
        ]  # fmt: skip


def test_the_way_back_loses_nothing(make: Make, tmp_path: Path) -> None:
    root = make({"environment/blob.bin": None})
    (root / "environment/blob.bin").write_bytes(bytes(range(256)))
    back = tasks.to_harbor(taken(root), tmp_path / "back")
    assert contents(back) == contents(root)
    again = tasks.to_harbor(taken(back), tmp_path / "again")
    assert contents(again) == contents(root)
    with pytest.raises(TaskFormatError, match="is there already"):
        tasks.to_harbor(taken(root), tmp_path / "back")


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_folder_of_directories(make: Make) -> None:
    first = make({}, name="a")
    make({"task.toml": 'schema_version = "1.0"\n'}, name="Other Name_1")
    found = tasks.from_harbor(first.parent, image="host", split="train")
    assert (found.ids, found.splits) == (("other-name_1", "acme/greet"), ("train", "train"))
    assert found[0].budget.seconds == 3600.0
    make({}, name="b")
    with pytest.raises(TaskFormatError, match="a second task with the id 'acme/greet'"):
        tasks.from_harbor(first.parent)
    with pytest.raises(TaskFormatError, match=r"no task.toml in .* or below"):
        tasks.from_harbor(first.parent / "nowhere")


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[[steps]]\nname = 'one'", "steps: a sandbox here has no such thing"),
        ("gpus = 1", "environment.gpus: a sandbox here has no such thing"),
        ("os = 'windows'", "environment.os: sandboxes run linux, not 'windows'"),
        ("allow_internet = true", "environment.allow_internet: sandboxes have no network; import with offline"),
        (
            "network_mode = 'allowlist'\nallowed_hosts = ['a.org']",
            "environment.network_mode: sandboxes have no network",
        ),
        ("skills_dir = '/s'", "environment.skills_dir: a sandbox"),
        ("[environment.healthcheck]\ncommand = 'true'", "environment.healthcheck: a sandbox"),
        ("[environment.env]\nKEY = '${KEY}'", "environment.env.KEY: takes its value from the host"),
        ("[[environment.mcp_servers]]\nname = 'x'\nurl = 'y'", "environment.mcp_servers: a sandbox"),
        ("workdir = '/'", "environment.workdir: name a directory such as /app, not '/'"),
        ("workdir = '/a/../..'", "environment.workdir: name a directory"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_key(make: Make, toml: str, message: str) -> None:
    root = make(toml=toml)
    (found,) = tasks.from_harbor(root).entries  # listed all the same
    with pytest.raises(TaskFormatError, match=rf"task.toml: .*{message}"):
        found.build()


@pytest.mark.parametrize(
    ("verifier", "message"),
    [
        ("environment_mode = 'separate'\n[verifier.environment]\ncpus = 2", "verifier.environment: a sandbox"),
        ("user = 'tester'", "verifier.user: imported tasks run as root, not as 'tester'"),
        ("[[verifier.collect]]\ncommand = 'x'", "verifier.collect: a sandbox"),
    ],
)
def test_verifiers_that_cannot_be_honoured(make: Make, verifier: str, message: str) -> None:
    text = f'schema_version = "1.4"\n[verifier]\n{verifier}\n'
    with pytest.raises(TaskFormatError, match=message):
        taken(make({"task.toml": text}))


def test_every_reason_is_told_at_once(make: Make) -> None:
    root = make({"tests/test.sh": None, "environment/docker-compose.yaml": "services: {}\n"}, toml="gpus = 2")
    with pytest.raises(TaskFormatError, match=r"gpus: .*; tests/test.sh: this file is missing; environment: services"):
        taken(root)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("= 3", r"task.toml: not a readable TOML file: .*line 1"),
        ("[environment]\ncpu = 1", "task.toml: environment.cpu: this key is not known"),
        ("[verifier]\ntimeout_sec = -1", "task.toml: verifier.timeout_sec: input should be greater than 0"),
        ("[verifier]\ntimeout_sec = inf", "task.toml: verifier.timeout_sec: input should be a finite number"),
        ("environment = 3", "task.toml: environment: input should be"),
        ('schema_version = "2.0"', r"schema_version: '2.0'; versions 1.x are read"),
    ],
)
def test_a_malformed_config_names_file_and_key(make: Make, text: str, message: str) -> None:
    with pytest.raises(TaskFormatError, match=message):
        tasks.from_harbor(make({"task.toml": text}))


def test_offline_takes_a_task_that_asks_for_a_network(make: Make) -> None:
    assert taken(make(toml="allow_internet = true"), offline=True).network == "none"


def test_hostile_directories(make: Make, tmp_path: Path) -> None:
    root = make()
    os.symlink("/etc/passwd", root / "tests/leak")
    with pytest.raises(TaskFormatError, match="tests/leak: a symbolic link"):
        taken(root)
    (root / "tests/leak").unlink()
    (root / "instruction.md").write_bytes(b"\xff")
    with pytest.raises(TaskFormatError, match=r"instruction.md: not UTF-8"):
        taken(root)
    (root / "instruction.md").write_text("# canary\n\n")
    with pytest.raises(TaskFormatError, match=r"instruction.md: says nothing"):
        taken(root)
    (root / "instruction.md").write_text("Do it.\n")
    (root / "solution/.harborignore").write_text("x\n")
    with pytest.raises(TaskFormatError, match="harborignore: rules that leave out files are not followed"):
        taken(root)


def test_without_an_image_of_ours_the_task_names_its_docker_image(make: Make) -> None:
    task = taken(make(), image=None)
    assert task.image.startswith("forkgym-harbor/acme-greet:")
    assert (task.files, len(task.setup), task.workdir) == ({}, 1, "/app")
    other = taken(make({"environment/data/greet.txt": "bye\n"}), image=None)
    assert other.image != task.image
    text = 'schema_version = "1.4"\n[environment]\ndocker_image = "acme/box:1"\nworkdir = "/srv/app"\n'
    named = taken(make({"task.toml": text, "environment/Dockerfile": None}), image=None)
    assert (named.image, named.workdir) == ("acme/box:1", "/srv/app")
    with pytest.raises(TaskFormatError, match="docker_image: no Dockerfile tells how 'host' could stand in"):
        taken(make({"task.toml": text, "environment/Dockerfile": None}))


def test_a_task_without_a_solution_says_so_when_it_is_proven(make: Make, bases: Bases) -> None:
    root = make({"solution/solve.sh": None})
    proof = prove(taken(root), bases, repeats=1)
    assert proof.oracle == 0.0
    assert "the task has no solution/solve.sh" in proof.problems[0]


def test_the_solution_gets_its_environment(make: Make, bases: Bases) -> None:
    solve = '#!/bin/bash\n[ "$A B" = "it\'s  B" ] && tr a-z A-Z < greet.txt > out/greet.txt\n'
    root = make({"solution/solve.sh": solve}, toml='[solution.env]\nA = "it\'s "')
    assert prove(taken(root), bases, repeats=1).oracle == 1.0


def test_what_the_image_is_made_of_is_no_leak(make: Make, bases: Bases) -> None:
    kept, secret = "GREETING = 'a line that stays as it is'\n", "ANSWER = 'a line of the solution'\n"
    root = make({"environment/data/mod.py": kept, "solution/mod.py": kept + secret})
    stand_in = {"image": "host", "files": {"mod.py": kept.encode()}, "setup": ()}
    task = replace(taken(root, image=None), **stand_in)
    told = replace(task, files={"mod.py": (kept + secret).encode()})
    with bases.box(replace(task, files={})) as box, bases.box(told) as leaking:
        box.write_file("/app/mod.py", kept.encode())
        assert leaks.find(box, replace(task, files={})) == []
        assert leaks.find(leaking, replace(task, files={})) != []

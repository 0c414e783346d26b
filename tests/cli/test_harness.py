"""``--harness`` and ``forkgym harness``, with a harness that a user might write."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forkgym.agents.harnesses import store
from forkgym.sandboxes import state

pytest.importorskip("starlette", reason="the extra gateway is not installed")

# One call of the model, whose words are run by bash, and the end.
ADAPTER = '''
from forkgym.agents.harnesses.base import Harness, Launch

PROGRAM = """
import json, subprocess, sys, urllib.request
url, key, task = sys.argv[1:]
body = json.dumps({"messages": [{"role": "user", "content": task}]}).encode()
with urllib.request.urlopen(urllib.request.Request(url, body, {"Authorization": "Bearer " + key})) as answer:
    text = json.load(answer)["choices"][0]["message"]["content"]
subprocess.run(["bash", "-c", text])
"""


def launch(place):
    path = f"{place.home}/once.py"
    argv = [*place.python[:-2], path, f"{place.url}/v1/chat/completions", place.key, place.task]
    return Launch(argv, files={path: PROGRAM})


ONCE = Harness("once", "pip", (), "chat", launch, shell=lambda command: ("bash", {"command": command}))
'''
FIX = """sed -i '8s/".".join/"".join/' slug.py"""


@pytest.fixture(scope="module", autouse=True)
def once(places: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("adapter")
    (folder / "once_adapter.py").write_text(ADAPTER)
    with places() as place, pytest.MonkeyPatch.context() as patch:
        patch.setenv(store.ENVIRONMENT, str(place / "harnesses"))
        patch.syspath_prepend(str(folder))
        yield folder
    sys.modules.pop("once_adapter", None)


def test_install_run_and_eval(forkgym: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "fix.json").write_text(json.dumps([FIX]))
    player = ("--harness", "once_adapter:ONCE", "--policy", "scripted:fix.json")
    missing = forkgym("run", "swe/tiny/slug/dots", *player)
    assert missing.returncode == 1
    assert "forkgym harness install once" in missing.stderr
    assert forkgym("harness", "install", "once_adapter:ONCE").stdout.startswith("once: ")

    shown = forkgym("run", "swe/tiny/slug/dots", *player)
    assert shown.returncode == 0, shown
    assert "sed -i" in shown.stdout
    assert "solved in 1 turn, reward 1" in shown.stdout

    record = json.loads(forkgym("run", "swe/tiny/slug/dots", *player, "--json").stdout)
    assert (record["harness"], record["status"], record["reward"]) == ("once", "finished", 1.0)


def test_a_table_of_players(forkgym: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "fix.json").write_text(json.dumps([FIX]))
    forkgym("harness", "install", "once_adapter:ONCE")
    words = ("eval", "--tasks", "swe/tiny/slug/d*", "--harness", "once_adapter:ONCE,oracle,nop")
    done = forkgym(*words, "--policy", "scripted:fix.json", "--out", "runs/table")
    assert done.returncode == 0, done
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0] == ["task", "once_adapter:ONCE", "oracle", "nop"]
    assert ["swe/tiny/slug/dots", "1/1", "1/1", "0/1"] in rows
    assert (tmp_path / "runs/table/oracle/episodes.jsonl").is_file()

    again = json.loads(forkgym(*words, "--policy", "scripted:fix.json", "--out", "runs/table", "--json").stdout)
    assert {name: each["summary"]["resolved"] for name, each in again["players"].items()} == {
        "once_adapter:ONCE": 1.0, "oracle": 1.0, "nop": 0.0,
    }  # fmt: skip


def test_a_list_of_what_there_is(forkgym: Callable[..., Any]) -> None:
    found = {row["name"]: row for row in json.loads(forkgym("harness", "list", "--json").stdout)}
    assert found["mini-swe-agent"]["installed"] is None  # this store is empty but for the tests' own
    assert found["claude-code"]["dialect"] == "messages"
    assert "mini-swe-agent==" in forkgym("harness", "list").stdout


def test_killed_with_a_harness_at_work_nothing_is_left(forkgym: Callable[..., Any], tmp_path: Path, once: Path) -> None:
    (tmp_path / "sleep.json").write_text(json.dumps(["exec sleep 48613"]))
    forkgym("harness", "install", "once_adapter:ONCE")
    words = ["run", "swe/tiny/slug/dots", "--harness", "once_adapter:ONCE", "--policy", "scripted:sleep.json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "forkgym.cli.main", *words],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(once)}, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(sleeping)
    finally:
        process.kill()
        process.wait()
    assert forkgym("gc").returncode == 0
    wait_until(lambda: not sleeping())
    assert [list((state.state_dir() / kind).iterdir()) for kind in ("boxes", "gateways")] == [[], []]


def sleeping() -> bool:
    """True if the command that the model wrote runs, in whatever sandbox."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it may end meanwhile
            if path.read_bytes() == b"sleep\0" + b"48613\0":
                return True
    return False


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--harness", "mini-swe-agnet"], "did you mean 'mini-swe-agent'"),
        (["run", "--harness", "pi", "--agent", "bash"], "--agent does not fit"),
        (["run", "--harness", "once_adapter:ONCE"], "needs a model"),
        (["eval", "--harness", "oracle,oracle"], "different players"),
        (["eval", "--harness", "oracle,nop", "--report", "x.html"], "--report does not fit"),
        (["harness", "install", "once_adapter:PROGRAM"], "not a forkgym.agents.harnesses.base.Harness"),
        (["harness", "check", "nobody"], "unknown harness 'nobody'"),
    ],
)
def test_wrong_words_are_refused(forkgym: Callable[..., Any], words: list[str], said: str) -> None:
    done = forkgym(*words)
    assert done.returncode == 2
    assert said in done.stderr

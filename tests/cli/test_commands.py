"""Commands that do something, each as a process, on real tasks and sandboxes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forkgym.agents.base import Episode
from forkgym.cli.evaluate import last_attempts
from forkgym.tasks.loader import library_root

Run = Callable[..., Any]

TASK = "swe/tiny/clamp/upper-bound"
ONE_VARIANT = """\
schema: 1
id: mine/clamp
family: swe
license: Apache-2.0
source: a copy for tests
grading:
  runner: unittest
  timeout: 60
  tests: [test_clamp.TestClamp.test_inside, test_clamp.TestClamp.test_above]
variants:
  - id: upper-bound
    split: train
    instruction: clamp(15, 0, 10) returns 15, it should return 10. Fix clamp.py.
    edits: [{file: clamp.py, find: "return high", replace: "return value"}]
"""


def test_doctor_says_that_episodes_can_be_played(forkgym: Run) -> None:
    done = forkgym("doctor", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["ok"]) == (0, True)
    local = next(check for check in found["sandboxes"] if check["name"] == "local")
    assert local["status"] in ("ok", "partly")
    assert {check["name"] for check in found["extras"]} >= {"train", "swe", "docker", "vllm", "ray", "kernel"}
    for check in found["extras"]:
        assert check["status"] == "ok" or "pip install" in check["fix"]
    assert {check["name"] for check in found["sandboxes"]} == {"local", "docker"}


def test_doctor_explains_its_marks_and_says_per_backend_what_is_held(forkgym: Run) -> None:
    shown = forkgym("doctor").stdout
    assert shown.splitlines()[1].split("  ") == [
        "✓ works",
        "! works, but read what is written below it",
        "✗ does not work",
        "– optional",
    ]
    local = shown[shown.index(" local ") : shown.index(" docker ")]
    for limit in ("memory", "pids", "cpu", "disk", "open_files"):
        assert re.search(rf"holds? [^:\n]*\b{limit}\b", local), local


def test_a_dead_docker_daemon_is_named_and_the_local_backend_still_counts(tmp_path: Path) -> None:
    nowhere = {"DOCKER_HOST": f"unix://{tmp_path}/no.sock"}
    child = process(tmp_path / "state", tmp_path, "doctor", "--json", **nowhere)
    found = json.loads(child.communicate(timeout=60)[0])
    docker = next(check for check in found["sandboxes"] if check["name"] == "docker")
    assert (child.returncode, found["ok"], docker["status"]) == (0, True, "missing")
    assert "docker" in docker["detail"]  # no daemon answers, or its SDK is not installed
    child = process(tmp_path / "state", tmp_path, "gc", "--json", **nowhere)
    cleaned = json.loads(child.communicate(timeout=60)[0])
    assert (child.returncode, set(cleaned["local"].values())) == (0, {0})
    assert "docker" in cleaned["skipped"]["docker"]
    assert "docker" not in cleaned


def process(state: Path | str, folder: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    """The command as a process of its own, with a state folder of its own."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "forkgym.cli.main", *words],
        cwd=folder, env={**os.environ, "FORKGYM_STATE": str(state), "COLUMNS": "120", **variables},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_doctor_names_the_mend_for_a_state_folder_that_cannot_be_used(tmp_path: Path) -> None:
    child = process("/proc/nowhere", tmp_path, "doctor")
    shown, _ = child.communicate(timeout=60)
    assert child.returncode == 1
    assert "No sandbox works here." in shown
    assert "FORKGYM_STATE" in shown


def test_tasks_list_and_show_agree(forkgym: Run) -> None:
    rows = json.loads(forkgym("tasks", "list", "swe/tiny/clamp/*", "--json").stdout)
    assert TASK in [row["id"] for row in rows]
    shown = json.loads(forkgym("tasks", "show", TASK, "--json").stdout)
    assert shown["instruction"].startswith(next(row for row in rows if row["id"] == TASK)["instruction"])
    assert "solution" not in shown
    assert set(shown["files"]) == {"README.md", "clamp.py"}
    solution = json.loads(forkgym("tasks", "show", TASK, "--solution", "--json").stdout)["solution"]
    assert solution["clamp.py"] != shown["files"]["clamp.py"]


def test_tasks_list_counts_the_splits(forkgym: Run) -> None:
    rows = json.loads(forkgym("tasks", "list", "swe/tiny", "--json").stdout)
    train, test = (sum(row["split"] == split for row in rows) for split in ("train", "test"))
    last = forkgym("tasks", "list", "swe/tiny").stdout.splitlines()[-1]
    assert last == f"{train + test} tasks ({test} test, {train} train)"


def test_tables_are_whole_where_no_terminal_is(forkgym: Run) -> None:
    asked = json.loads(forkgym("tasks", "show", "swe/tiny/clamp/low-gives-high", "--json").stdout)["instruction"]
    assert len(asked) > 80
    shown = forkgym("tasks", "list", "swe/tiny/clamp/low-gives-high").stdout
    assert asked.splitlines()[0] in shown


def copied(folder: Path, *, break_solution: bool) -> Path:
    """A task folder of our own, copied from the library."""
    task = folder / "mine" / "clamp"
    shutil.copytree(library_root() / "swe" / "tiny" / "clamp", task)
    (task / "proof.json").unlink(missing_ok=True)
    if break_solution:
        solution = task / "hidden" / "solution" / "clamp.py"
        solution.write_text(solution.read_text().replace("return high", "return high + 1"))
    return task


def test_tasks_verify_stores_the_proof_of_a_sound_task(forkgym: Run, tmp_path: Path) -> None:
    copied(tmp_path, break_solution=False)
    (tmp_path / "mine" / "clamp" / "task.yaml").write_text(ONE_VARIANT)
    done = forkgym("tasks", "verify", "mine", "--repeats", "1", "--write", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["sound"], found["of"]) == (0, 1, 1)
    assert (found["proofs"][0]["oracle"], found["proofs"][0]["nothing"]) == (1.0, 0.0)
    shown = json.loads(forkgym("tasks", "list", "mine", "--json").stdout)
    assert [row["id"] for row in shown] == ["mine/clamp/upper-bound"]
    assert json.loads((tmp_path / "mine" / "clamp" / "proof.json").read_text())


def test_tasks_verify_names_what_is_wrong_and_stores_nothing(forkgym: Run, tmp_path: Path) -> None:
    task = copied(tmp_path, break_solution=True)
    (task / "task.yaml").write_text(ONE_VARIANT)
    done = forkgym("tasks", "verify", "mine", "--repeats", "1", "--write")
    assert done.returncode == 1
    assert "the solution fails test_clamp.TestClamp.test_above" in done.stdout
    assert "0 of 1 tasks are sound" in done.stdout
    assert not (task / "proof.json").exists()


def test_run_shows_the_oracle_solve_a_task(forkgym: Run) -> None:
    done = forkgym("run", TASK)
    assert done.returncode == 0, done.stderr
    assert "turn 1" in done.stdout
    assert "reward 1" in done.stdout.splitlines()[-1]


def test_run_as_json_is_one_document(forkgym: Run) -> None:
    done = forkgym("run", TASK, "--agent", "nop", "--json")
    episode = json.loads(done.stdout)
    assert done.returncode == 1
    assert (episode["status"], episode["reward"], episode["verdict"]["resolved"]) == ("finished", 0.0, False)
    assert episode["verdict"]["findings"]


def test_eval_measures_and_goes_on_where_it_stopped(forkgym: Run, tmp_path: Path) -> None:
    words = ["eval", "--tasks", "swe/tiny/clamp/[lu]*", "--out", "e", "--concurrency", "2", "--json"]
    first = json.loads(forkgym(*words).stdout)
    count = first["summary"]["episodes"]
    assert first["summary"]["resolved"] == 1.0
    records = tmp_path / "e" / "episodes.jsonl"
    assert len(records.read_text().splitlines()) == count
    second = forkgym(*words)
    assert f"{count} of {count} episodes are kept from an earlier run in e" in second.stderr
    assert json.loads(second.stdout)["summary"]["episodes"] == count
    assert len(records.read_text().splitlines()) == count
    more = json.loads(forkgym(*words, "-n", "2").stdout)
    assert more["summary"]["scored"] == 2 * count
    assert len(records.read_text().splitlines()) == 2 * count


def test_retries_count_for_their_job_and_names_with_a_dot_for_themselves() -> None:
    ids = ["swe/a#0", "swe/a#0.retry1", "swe/b.retry#0", "swe/b.retry#0.retry12"]
    episodes = [Episode(id, "t", "g", "h", seed) for seed, id in enumerate(ids)]
    assert {job: e.seed for job, e in last_attempts(episodes).items()} == {"swe/a#0": 1, "swe/b.retry#0": 3}


def test_eval_refuses_the_records_of_another_evaluation(forkgym: Run, tmp_path: Path) -> None:
    assert forkgym("eval", "--tasks", TASK, "--out", "e").returncode == 0
    before = (tmp_path / "e" / "episodes.jsonl").read_bytes()
    done = forkgym("eval", "--tasks", TASK, "--out", "e", "--agent", "nop")
    assert done.returncode == 2
    assert "agent was 'oracle'" in done.stderr
    assert (tmp_path / "e" / "episodes.jsonl").read_bytes() == before


def test_evals_without_a_folder_do_not_meet_and_each_goes_on(forkgym: Run, tmp_path: Path) -> None:
    words = ["eval", "--tasks", TASK, "--json"]
    folders = [json.loads(forkgym(*words, "--agent", name).stdout)["records"] for name in ("oracle", "nop")]
    assert sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "runs").iterdir()) == sorted(folders)
    assert [re.sub("[0-9a-f]{8}$", "", folder) for folder in folders] == ["runs/eval-oracle-", "runs/eval-nop-"]
    again = forkgym(*words, "--agent", "nop")
    assert json.loads(again.stdout)["records"] == folders[1]
    assert "1 of 1 episodes are kept from an earlier run" in again.stderr


def test_eval_within_a_budget_goes_on_next_time(forkgym: Run, tmp_path: Path) -> None:
    words = ["eval", "--tasks", "swe/tiny/clamp/*", "--agent", "oracle", "--out", "e", "--concurrency", "1"]
    done = forkgym(*words, "--max-seconds", "0.001", "--tree-digests")
    assert done.returncode == 1
    assert "The seconds were used up; the same command goes on." in done.stderr
    played = [json.loads(line) for line in (tmp_path / "e" / "episodes.jsonl").read_text().splitlines()]
    assert 1 <= len(played) < 9
    assert all(step["tree"] for episode in played for step in episode["steps"])
    done = forkgym(*words, "--tree-digests")
    assert (done.returncode, "(9 of 9 scored episodes)" in done.stdout) == (0, True)


def test_eval_writes_a_report(forkgym: Run, tmp_path: Path) -> None:
    done = forkgym("eval", "--tasks", TASK, "--agent", "nop", "--out", "e", "--report", "r/r.html")
    assert done.returncode == 0
    page = (tmp_path / "r" / "r.html").read_text()
    assert f"<h1>nop on {TASK}</h1>" in page
    assert "0% solved" in done.stdout


def test_interrupted_eval_keeps_what_is_finished_and_leaves_nothing(tmp_path: Path) -> None:
    state = tmp_path / "state"
    words = ["eval", "--tasks", "swe/tiny/*", "--out", "e", "--concurrency", "2", "-n", "20"]
    child = process(state, tmp_path, *words)
    records = tmp_path / "e" / "episodes.jsonl"
    deadline = time.monotonic() + 60
    while not (records.is_file() and records.read_text().count("\n") >= 3):
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130
    assert errors.rstrip().endswith("Interrupted. What was finished is kept.")
    assert "Traceback" not in errors
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    assert sum(line["reward"] == 1.0 for line in lines) >= 3
    assert not [line for line in lines if line["status"] == "failed"]
    assert list((state / "boxes").iterdir()) == []


def test_gc_says_what_it_removed(tmp_path: Path) -> None:
    shown, _ = process(tmp_path / "state", tmp_path, "gc", "--json").communicate(timeout=60)
    assert set(json.loads(shown)["local"].values()) <= {0}


def test_run_takes_a_policy_by_engine(forkgym: Run, tmp_path: Path) -> None:
    (tmp_path / "turns.yaml").write_text('- "```bash\\necho seen\\n```"\n- "```bash\\nsubmit\\n```"\n')
    done = forkgym("run", "swe/tiny/clamp/upper-bound", "--agent", "bash", "--policy", "scripted:turns.yaml", "--json")
    episode = json.loads(done.stdout)
    assert (done.returncode, episode["reason"], episode["reward"]) == (1, "submitted", 0.0)
    assert [step["observation"].startswith("seen") for step in episode["steps"]] == [True, False]
    assert episode["sampling"]["top_p"] == 1.0


def test_agent_options_reach_the_agent(forkgym: Run, tmp_path: Path) -> None:
    (tmp_path / "turns.yaml").write_text('- "```bash\\necho seen\\n```"\n- "```bash\\nsubmit\\n```"\n')
    words = ["--agent", "bash", "--policy", "scripted:turns.yaml", "--agent-option", "system=Be $quick."]
    done = forkgym("run", "swe/tiny/clamp/upper-bound", *words, "--json")
    assert json.loads(done.stdout)["prompt"][0] == {"role": "system", "content": "Be $quick."}
    words = ["eval", "--tasks", "swe/tiny/clamp/upper-bound", *words, "--out", "run"]
    assert forkgym(*words).returncode == 0
    other = forkgym(*words[:-4], "--agent-option", "system=Be slow.", "--out", "run")
    assert other.returncode == 2
    assert "agent_options was" in other.stderr


def test_run_shows_each_call_of_a_turn_once(forkgym: Run, tmp_path: Path) -> None:
    look = '<tool_call>\n{"name": "view", "arguments": {"path": "clamp.py"}}\n</tool_call>'
    turn = f'Look.\n{look}\n<tool_call>\n{{"name": "submit"}}\n</tool_call>'
    (tmp_path / "turns.json").write_text(json.dumps([turn]))
    done = forkgym("run", "swe/tiny/clamp/upper-bound", "--agent", "tools", "--policy", "scripted:turns.json")
    assert "Chat format: chatml" in done.stderr
    assert done.stdout.count("Look.") == 1
    assert done.stdout.count("def clamp") == 1
    assert "turn 2" in done.stdout

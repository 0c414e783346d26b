"""A killed trainer leaves nothing: processes and mounts go at once, files and groups with the next clean-up."""

import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from forkgym.sandboxes import state
from forkgym.sandboxes.base import SandboxSpec
from forkgym.sandboxes.local import cgroups
from forkgym.sandboxes.local.backend import LocalBackend

TRAINER = """
import sys
from forkgym.sandboxes.base import SandboxSpec
from forkgym.sandboxes.local.backend import LocalBackend
backend = LocalBackend()
box = backend.create(SandboxSpec())
box.exec("echo kept >file; (setsid sleep 1%s &)" % sys.argv[1])
children = box.fork(2)
children[0].shell().run("echo child >file; chmod 0 .; sleep 1%s &" % sys.argv[1])
grandchild = children[0].fork()[0]
print(box.snapshot().id, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def token():
    return str(uuid.uuid4().int % 10**12)


@pytest.fixture
def trainer(own_state, token):
    with subprocess.Popen(
        [sys.executable, "-c", TRAINER, token], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


def boxes_of(pid):
    """Ids of the boxes that belong to a process."""
    leases = {path.parent.name: state.read_json(path) for path in (state.state_dir() / "boxes").glob("*/lease.json")}
    return {name for name, lease in leases.items() if lease and lease["pid"] == pid}


def processes_with(word):
    """Ids of this machine's processes whose command line has ``word``."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes():
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found


def names(kind):
    return {path.name for path in (state.state_dir() / kind).iterdir()}


def groups_of(pid):
    """Control groups whose name says that they belong to a process."""
    homes, _ = cgroups.find_homes()
    return {path for home in homes.values() for path in home.directory.glob(f"*@{pid}.*")}


def wait_until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited 20 s in vain"
        time.sleep(0.02)


def test_a_killed_trainer_leaves_nothing_but_its_snapshots(trainer, token, own_state):
    snapshot = trainer.stdout.readline().strip()
    left = boxes_of(trainer.pid)
    assert len(left) == 4
    assert len(processes_with(f"sleep\0001{token}")) == 2
    assert (len(groups_of(trainer.pid)) > 0) == (len(cgroups.find_homes()[0]) > 0)
    trainer.kill()
    wait_until(lambda: not processes_with(token))

    backend = LocalBackend()
    assert backend.gc()["boxes"] == 4
    assert not left & names("boxes")
    assert groups_of(trainer.pid) == set()
    assert str(own_state) not in Path("/proc/self/mounts").read_text()
    with backend.create(SandboxSpec(), snapshot=snapshot) as box:
        assert box.read_file("file") == b"kept\n"
    layers = set(json.loads((own_state / "snapshots" / f"{snapshot}.json").read_text())["layers"])
    assert layers <= names("layers")
    backend.delete_snapshot(snapshot)
    assert snapshot not in {one.id for one in backend.snapshots()}
    wait_until(lambda: not layers & names("layers"))


def test_what_a_live_trainer_has_is_left_alone(trainer, token):
    trainer.stdout.readline()
    boxes, groups = boxes_of(trainer.pid), groups_of(trainer.pid)
    assert LocalBackend().gc()["boxes"] == 0
    assert boxes_of(trainer.pid) == boxes
    assert groups_of(trainer.pid) == groups
    assert len(processes_with(f"sleep\0001{token}")) == 2


def test_the_next_trainer_cleans_up_too(trainer):
    trainer.stdout.readline()
    left = boxes_of(trainer.pid)
    trainer.kill()
    trainer.wait()
    code = "from forkgym.sandboxes import create\nwith create() as box: print(box.exec('echo alive').stdout)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("b'alive\\n'\n", "")
    assert not left & names("boxes")
    assert groups_of(trainer.pid) == set()


def test_closing_leaves_no_file_group_or_process(token):
    groups, layers = groups_of(os.getpid()), names("layers")
    backend = LocalBackend()
    box = backend.create(SandboxSpec())
    box.exec(f"echo x >file; (setsid sleep 1{token} &)")
    assert len(processes_with(f"sleep\0001{token}")) == 1
    children = box.fork(3)
    grandchild = children[1].fork()[0]
    grandchild.exec("mkdir -m 0 closed")
    for one in (children[1], box, grandchild, children[0], children[2]):
        one.close()
    assert not processes_with(token)
    wait_until(lambda: not boxes_of(os.getpid()) and names("layers") <= layers and not names("trash"))
    wait_until(lambda: groups_of(os.getpid()) <= groups)


def test_the_next_run_of_the_tests_sweeps_what_a_killed_one_left(sweep_places, tmp_path):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as run:
        dead = state._owner(run.pid).tag()
        run.kill()
    for tag in (dead, state.Owner.current().tag()):
        (tmp_path / f"forkgym-test-{tag}-abc" / "state").mkdir(parents=True)
    (tmp_path / "forkgym-test-mine").mkdir()
    sweep_places([tmp_path])
    alive = f"forkgym-test-{state.Owner.current().tag()}-abc"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([alive, "forkgym-test-mine"])


@pytest.mark.parametrize("last", ["", "child.close(); box.close()"])
def test_a_process_that_ends_removes_its_containers_and_the_one_about_to_start(daemon, tmp_path, last):
    program = f"""
import os
from forkgym.sandboxes import create
box = create("docker")
child = box.fork()[0]  # from now on containers are made ready in the background
print(os.getpid())
{last}
"""
    environment = {**os.environ, state.ENVIRONMENT: str(tmp_path / "state")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    left = subprocess.run(
        ["docker", "ps", "-a", "--format", '{{.Label "forkgym"}}'], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    assert f'"pid": {done.stdout.strip()},' not in left
    assert [os.listdir(tmp_path / "state" / kind) for kind in ("boxes", "layers", "trash")] == [[], [], []]

"""D17: in a container that allows user namespaces sandboxes work; where the kernel refuses, the message says what."""

import os
import subprocess
import sys

import pytest

from forkgym.sandboxes import state

CYCLES = """
import os
import time
from pathlib import Path
from forkgym.sandboxes import create

def parents():
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(path.parent.name)] = (fields[0], int(fields[1]))
    return found

def ours(pid, all):
    while pid in all and pid != os.getpid():
        pid = all[pid][1]
    return pid == os.getpid()

for _ in range(99):
    with create() as box:
        pass
with create() as box:
    print(box.exec("ps -eo comm --no-headers | sort").stdout.decode().split())
    # A process that ended this moment may still wait to be reaped; a zombie that stays is a fault.
    deadline = time.monotonic() + 20
    while True:
        all = parents()
        zombies = sum(kind == "Z" and ours(pid, all) for pid, (kind, _) in all.items())
        if not zombies or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    print(zombies)
"""
ONE = """
from forkgym.sandboxes import create
from forkgym.sandboxes.errors import SandboxUnavailableError
try:
    create().close()
except SandboxUnavailableError as error:
    print(error)
"""
POWERLESS = "exec setpriv --bounding-set=-sys_admin --inh-caps=-all"


def contained(place, before, program):
    """What ``program`` prints as root of a namespace, as in a container, after the commands ``before``."""
    namespace = ("unshare", "--user", "--map-root-user", "--mount", "--")
    return subprocess.run(
        [*namespace, "sh", "-c", f'{before} "$@"', "-", sys.executable, "-c", program],
        env={**os.environ, state.ENVIRONMENT: str(place)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.fixture
def place(tmp_path):
    """State of its own, since what lies there belongs to other ids than outside."""
    folder = state.state_dir().parent / f"{tmp_path.name}-contained"
    yield folder
    state.remove_tree(folder)


def test_it_works_and_leaves_no_zombie(place):
    assert contained(place, "exec", CYCLES) == "['bash', 'init', 'ps', 'sort']\n0\n"


@pytest.mark.parametrize("last", ["exec", POWERLESS])
def test_a_covered_proc_is_named(place, last):
    said = contained(place, f"mount -t tmpfs none /proc/fs; {last}", ONE)
    assert "mount(proc" in said
    assert "--security-opt systempaths=unconfined" in said


def test_a_kernel_without_user_namespaces_is_named(place):
    said = contained(place, f"echo 0 > /proc/sys/user/max_user_namespaces; {POWERLESS}", ONE)
    assert "user.max_user_namespaces=0: an administrator may set it to 10000" in said
    assert "CAP_SYS_ADMIN (docker run --privileged)" in said

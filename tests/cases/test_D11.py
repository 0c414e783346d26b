"""D11: a client that vanished keeps nothing: the next one finds all room, and all that the dead one had is gone."""

import subprocess
import sys
import uuid
from pathlib import Path

from forkgym.sandboxes import create, state

CLIENT = """
import sys
from forkgym.sandboxes import create
box = create()
box.exec("(setsid sleep %s >/dev/null 2>&1 &)" % sys.argv[1])
child = box.fork()[0]
print(box.id, child.id, flush=True)
sys.stdin.read()
"""
THIRD = """
from forkgym.sandboxes import backend, create
with create() as box:
    print(box.exec("echo third").stdout.decode(), end="")
print(backend("local").gc()["boxes"])
"""


def start(seconds):
    command = [sys.executable, "-c", CLIENT, seconds]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def sleepers(seconds):
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += f"sleep\0{seconds}\0".encode() in path.read_bytes()
        except OSError:
            continue
    return found


def test_killed_clients_leave_room_and_a_living_one_keeps_its_own():
    seconds = f"9{uuid.uuid4().int % 10**9:09}"
    with create() as mine, start(seconds) as one, start(seconds) as two:
        assert one.stdout is not None
        assert two.stdout is not None
        left = {*one.stdout.readline().split(), *two.stdout.readline().split()}
        assert len(left) == 4
        assert sleepers(seconds) == 2
        for client in (one, two):
            client.kill()
            client.wait()
        done = subprocess.run([sys.executable, "-c", THIRD], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[0] == "third"
        assert sleepers(seconds) == 0
        boxes = {path.name for path in (state.state_dir() / "boxes").iterdir()}
        assert not left & boxes
        assert mine.id in boxes
        assert mine.exec("echo on").stdout == b"on\n"

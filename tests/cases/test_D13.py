"""D13: many sandboxes at once, from two processes, after a crash: no two have the same name."""

import subprocess
import sys

PROGRAM = """
from concurrent.futures import ThreadPoolExecutor
from forkgym.sandboxes import create
with ThreadPoolExecutor(16) as pool:
    boxes = list(pool.map(lambda _: create(), range(16)))
print(*(box.id for box in boxes), flush=True)
input()
for box in boxes:
    box.close()
"""


def start():
    return subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ids_of(process):
    assert process.stdout is not None
    return process.stdout.readline().split()


def test_names_never_collide():
    with start() as crashed:
        ids = ids_of(crashed)
        crashed.kill()
    with start() as one, start() as two:
        ids += ids_of(one) + ids_of(two)
        for process in (one, two):
            process.communicate("\n")
    assert len(ids) == len(set(ids)) == 48
    assert (one.returncode, two.returncode) == (0, 0)

"""D01: no child survives a timeout, inside or on the host."""

import uuid
from pathlib import Path

from forkgym.sandboxes import create


def on_the_host(word):
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += word.encode() in path.read_bytes()
        except OSError:
            continue
    return found


def count(box):
    """How many processes the sandbox has, with the one that looks."""
    return sum(name.isdigit() for name in box.exec(["ls", "/proc"]).stdout.split())


def test_children_of_a_timed_out_command_are_gone():
    seconds = f"7{uuid.uuid4().int % 10**9:09}"
    with create() as box:
        before = count(box)
        for _ in range(20):
            assert box.exec(f"sh -c 'sleep {seconds}; true'", timeout=0.1).timed_out
            assert on_the_host(f"sleep\0{seconds}") == 0
        assert count(box) == before

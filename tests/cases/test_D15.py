"""D15: a kill for memory is told apart from a failing command, and from the death of the sandbox."""

import os
import select
import signal

import pytest

from forkgym.sandboxes import backend, create
from forkgym.sandboxes.errors import SandboxDeadError


def test_memory_is_named_as_the_reason_and_the_sandbox_goes_on():
    held = "memory" in backend("local").capabilities().limits
    with create(limits={"memory": "256M"}) as box:
        box.write_file("kept", b"1")
        for run in (box.exec, box.shell().run):
            result = run("python3 -c 'x = bytearray(10**9)'", timeout=60)
            assert not result.ok
            assert result.oom_killed == held
        result = box.exec("echo alive; cat kept")
        assert (result.stdout, result.oom_killed) == (b"alive\n1", False)


def test_the_death_of_the_first_process_is_an_infrastructure_failure():
    with create() as box:
        namespace = box.exec("readlink /proc/self/ns/pid").stdout.decode().strip()
        (first,) = members(namespace)
        handle = os.pidfd_open(first)
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        ended, _, _ = select.select([handle], [], [], 30)
        os.close(handle)
        assert ended
        assert not box.alive
        with pytest.raises(SandboxDeadError):
            box.exec("true", timeout=5)


def members(namespace):
    """The processes of a pid namespace, as the host numbers them."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/ns/pid") == namespace:
                found.append(int(name))
        except OSError:
            continue
    return found

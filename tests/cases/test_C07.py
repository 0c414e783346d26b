"""C07: a background server does not keep the call open, serves the next one, and dies with the sandbox."""

import os

import pytest

from forkgym.sandboxes import create


@pytest.mark.parametrize("kind", ["exec", "shell"])
def test_a_background_server_neither_blocks_nor_dies(kind):
    with create() as box:
        run = box.exec if kind == "exec" else box.shell().run
        for command, output in (
            ("sleep 60 & echo up", b"up\n"),
            ("python3 -m http.server 8123 & echo up", b"up\n"),
            ("(sleep 60 &) ; true", b""),
        ):
            result = run(command, timeout=25)
            assert (result.timed_out, result.exit_code) == (False, 0)
            assert result.stdout.startswith(output)
        connect = "until exec 3<>/dev/tcp/127.0.0.1/8123; do sleep 0.1; done 2>/dev/null"
        fetch = f"{connect}; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; head -n 1 <&3"
        assert b" 200 OK" in run(fetch, timeout=30).stdout
        namespace = run("readlink /proc/self/ns/pid", timeout=25).stdout.decode().strip()
        assert members(namespace)
    assert members(namespace) == []


def members(namespace):
    """The processes of a pid namespace that live, as the host numbers them."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/ns/pid") == namespace:
                found.append(name)
        except OSError:
            continue
    return found

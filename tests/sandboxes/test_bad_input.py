"""Bad input is refused with an error that names the field, and leaves the sandbox as good as before."""

import os
from typing import Any, cast

import pytest

from forkgym.errors import ConfigError
from forkgym.sandboxes import Limits, Mount, create, state
from forkgym.sandboxes.errors import ImageError, SandboxError, SnapshotError
from forkgym.sandboxes.local import cleanup


@pytest.fixture(scope="module")
def box():
    with create("local") as sandbox:
        yield sandbox


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"backend": "locla"}, ConfigError, "backend 'locla'; did you mean 'local'"),
        ({"backend": 7}, ConfigError, "backend is 7; give a text"),
        ({"image": 7}, ConfigError, "image is 7; give a text"),
        ({"snapshot": b"0"}, ConfigError, "snapshot is b'0'; give a text"),
        ({"image": "no-such"}, ImageError, "no-such"),
        ({"image": "../../etc"}, ImageError, r"\.\./\.\./etc"),
        ({"snapshot": "../../etc/passwd"}, SnapshotError, "hexadecimal"),
        ({"limits": {"memroy": "1G"}}, ConfigError, "limit 'memroy'; did you mean 'memory'"),
        ({"limits": {"memory": "1X"}}, ConfigError, "limit 'memory' is '1X'; allowed: bytes or text"),
        ({"limits": 5}, ConfigError, "limits are 5; give a mapping"),
        ({"limits": Limits(memory=-5)}, ConfigError, "limit 'memory' is -5"),
        ({"limits": Limits(memory=cast(Any, "1G"))}, ConfigError, "holds text"),
        ({"limits": Limits(pids=1)}, ConfigError, "limit 'pids' is 1"),
        ({"limits": {"pids": 10**9}}, ConfigError, "limit 'pids' is 1000000000; .* at most 4194304"),
        ({"limits": {"disk": "9" * 400}}, ConfigError, "limit 'disk' is '9999"),
        ({"limits": Limits(cpu=float("nan"))}, ConfigError, "limit 'cpu' is nan"),
        ({"limits": Limits(wall=-1)}, ConfigError, "limit 'wall' is -1"),
        ({"network": "host"}, ConfigError, "network is 'host'"),
        ({"workdir": "work"}, ConfigError, "workdir is 'work'; give an absolute path"),
        ({"workdir": "/w\0"}, ConfigError, "workdir is"),
        ({"workdir": "/etc/passwd"}, SandboxError, "/etc/passwd"),
        ({"user": "wheel"}, ConfigError, "user is 'wheel'"),
        ({"snapshot": "0" * 16, "image": "host"}, ConfigError, "image is 'host', but a snapshot has"),
        ({"env": {"A=B": "1"}}, ConfigError, "env holds 'A=B'"),
        ({"env": {"A": "\0"}}, ConfigError, "env holds 'A'"),
        ({"env": {"A": 1}}, ConfigError, "env holds 'A': 1"),
        ({"env": {"A": "\ud800"}}, ConfigError, "env holds 'A'"),
        ({"mounts": ["/etc:/x"]}, ConfigError, "mounts hold '/etc:/x'; give Mount"),
        ({"mounts": [Mount("/no/such", "/x")]}, SandboxError, "/no/such"),
        ({"mounts": [Mount("/etc", "x")]}, ConfigError, "mount target is 'x'; give an absolute path"),
        ({"mounts": [Mount("/etc", "/a/..")]}, ConfigError, "mount target is '/a/..', which belongs to the sandbox"),
        ({"mounts": [Mount("/etc", "/proc/x")]}, ConfigError, "mount target is '/proc/x'"),
    ],
)
def test_options_of_a_sandbox(options, kind, words):
    cleanup.wait()  # for what earlier tests closed
    before = sorted(os.listdir(state.state_dir() / "boxes"))
    with pytest.raises(kind, match=words):
        create(**options)
    cleanup.wait()
    assert sorted(os.listdir(state.state_dir() / "boxes")) == before


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), 10**400, None, "3", True])
def test_timeouts(box, timeout):
    for run in (box.exec, box.shell().run):
        with pytest.raises(ConfigError, match=r"timeout is .*; give a positive number of seconds"):
            run("true", timeout=timeout)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda box: box.exec(5), "command is 5; give text"),
        (lambda box: box.exec(b"true"), "command is b'true'"),
        (lambda box: box.exec(["echo", 1]), r"command is \['echo', 1\]"),
        (lambda box: box.shell().run(b"true"), "command is b'true'"),
        (lambda box: box.exec("true", cwd="/\0"), "cwd is"),
        (lambda box: box.exec("true", env={"": "1"}), "env holds ''"),
        (lambda box: box.exec("cat", stdin="text"), "stdin is 'text'; give bytes"),
        (lambda box: box.exec("true", max_output=-1), "max_output is -1"),
        (lambda box: box.shell().run("true", max_output="1"), "max_output is '1'"),
        (lambda box: box.read_file("/etc/passwd", max_bytes=-1), "max_bytes is -1"),
        (lambda box: box.write_file("x", "text"), "data is 'text'; give bytes"),
        (lambda box: box.write_file("x", b"", mode=-1), "mode is -1; give a whole number from 0 to 4095"),
        (lambda box: box.exec("true", env=["A"]), r"env is \['A'\]; give a mapping"),
        (lambda box: box.read_file(None), "path is None"),
        (lambda box: box.snapshot(7), "label is 7"),
        (lambda box: box.snapshot("\ud800"), "label is"),
        (lambda box: box.fork(0), "n of fork is 0"),
        (lambda box: box.fork(1.5), "n of fork is 1.5"),
        (lambda box: box.fork(10**9), "n of fork is 1000000000; give a whole number from 1 to 4096"),
        (lambda box: box.fork(1, background="freeze"), "background is 'freeze'; give one of fail, kill, copy"),
    ],
)
def test_arguments_of_a_call(box, call, words):
    with pytest.raises(ConfigError, match=words):
        call(box)
    assert box.exec("echo on; ls").stdout == b"on\n"


def test_a_command_with_a_nul_is_a_result_since_it_may_come_from_a_model(box):
    for result in (box.exec("echo a\0b"), box.shell().run("echo a\0b")):
        assert result.exit_code == 126
        assert b"NUL" in result.stdout + result.stderr

"""The docker backend beyond the contract that all share: the daemon, its images, and who dies with whom."""

import contextlib
import gc
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from forkgym.errors import ConfigError
from forkgym.sandboxes import backend as find_backend
from forkgym.sandboxes import create
from forkgym.sandboxes.base import Limits, Mount, SandboxSpec
from forkgym.sandboxes.errors import (
    ImageError,
    SandboxDeadError,
    SandboxError,
    SandboxTimeoutError,
    SandboxUnavailableError,
    SnapshotError,
)
from forkgym.sandboxes.local import cleanup

pytestmark = pytest.mark.usefixtures("daemon")
MODES = ("overlay", "commit")


def backend(**options):
    from forkgym.sandboxes.docker.backend import DockerBackend

    return DockerBackend(**options)


def docker(*arguments):
    """What the daemon itself says, through its own client."""
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout


def containers_of(pid):
    """Names of the containers, running or not, that a process has made."""
    lines = docker("ps", "-a", "--filter", "label=forkgym", "--format", '{{.Names}} {{.Label "forkgym"}}').splitlines()
    owners = {name: json.loads(label)["owner"]["pid"] for name, label in (line.split(" ", 1) for line in lines)}
    return {name for name, owner in owners.items() if owner == pid}


def container(box):
    return box._container


def image(box):
    return box._image


def images(word):
    return [line for line in docker("images", "--format", "{{.Repository}}:{{.Tag}}").splitlines() if word in line]


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited 60 s in vain"
        time.sleep(0.05)


@pytest.fixture(scope="module", params=MODES)
def either(request, daemon):
    return backend(fork=request.param)


def test_more_processors_than_the_machine_has_are_no_limit():
    with create("docker", limits={"cpu": 1e6}) as box:
        assert box.exec("echo here").stdout == b"here\n"


def test_it_is_found_by_its_name():
    assert find_backend("docker").name == "docker"
    with create("docker") as box:
        assert box.exec("echo here").stdout == b"here\n"


def test_a_wrong_option_is_refused():
    with pytest.raises(ConfigError, match="'copy'; allowed: auto, overlay, commit"):
        backend(fork="copy")
    with pytest.raises(ConfigError, match="patience=0"):
        backend(patience=0)


def test_capabilities_say_how_it_forks(either):
    can = either.capabilities()
    assert can.tier == either._fork
    assert can.isolation == "container"
    assert set(can.limits) | set(can.unenforced) == {"memory", "pids", "cpu", "disk", "open_files", "wall"}
    assert "memory" in can.limits
    assert ("wall" in can.limits) == ("disk" in can.limits) == (can.tier == "overlay")


# The container


def test_it_is_closed_in(either):
    with either.create(SandboxSpec(limits=Limits(memory=128 << 20, pids=64, cpu=0.5))) as box:
        found = json.loads(docker("inspect", container(box).name))[0]
        config = found["HostConfig"]
        assert (config["NetworkMode"], config["CapDrop"], config["Privileged"]) == ("none", ["ALL"], False)
        assert "no-new-privileges" in config["SecurityOpt"]
        assert (config["Memory"], config["MemorySwap"]) == (128 << 20, 128 << 20)
        assert (config["PidsLimit"], config["NanoCpus"]) == (64, 500_000_000)
        assert found["Config"]["User"] == "1000:1000"
        assert all(not mount["RW"] for mount in found["Mounts"])
        limit = box.exec("cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null")
        assert limit.stdout.strip() == str(128 << 20).encode()


def test_the_first_process_cannot_be_reached_from_inside(either):
    connect = """
import socket
for kind in (socket.SOCK_SEQPACKET, socket.SOCK_STREAM):
    try:
        socket.socket(socket.AF_UNIX, kind).connect("/.forkgym/run/socket")
        print("connected")
    except OSError as error:
        print(error.strerror)
"""
    with either.create(SandboxSpec()) as box:
        assert box.exec(["python3", "-c", connect]).stdout == b"No such file or directory\n" * 2
        for path in ("/proc/1/mem", "/proc/1/environ", "/proc/1/fd", "/proc/1/root"):
            assert not box.exec(f"ls -l {path}/ || cat {path}").ok, path
        box.exec("kill -INT 1; kill -CHLD 1; kill -STOP 1; kill -9 1")
        assert box.exec("echo served").stdout == b"served\n"
        assert not box.exec("touch /.forkgym/start.py /.forkgym/x 2>/dev/null").ok


def test_no_path_of_its_box_shows_in_an_overlay(daemon, own_state):
    with backend(fork="overlay").create(SandboxSpec()) as box:
        table = box.exec("cat /proc/self/mountinfo").stdout.decode()
        assert "/boxes/" not in table
        assert "/layers/" not in table


def test_root_inside_has_few_powers_and_its_files_fork(daemon):
    with backend(fork="overlay").create(SandboxSpec()) as box:
        assert box.exec("id -u; echo made >/usr/local/by-root", user="root").stdout == b"0\n"
        assert not box.exec("mount -t tmpfs none /mnt", user="root").ok
        assert not box.exec("mknod /tmp/disk b 8 0", user="root").ok
        assert box.exec("sleep 60", user="root", timeout=0.3).timed_out
        with box.fork()[0] as child:
            assert child.exec("cat /usr/local/by-root; stat -c %U /usr/local/by-root").stdout == b"made\nroot\n"


def test_a_directory_of_the_host_is_shown_read_only(either, tmp_path):
    (tmp_path / "data").write_text("from outside")
    tmp_path.chmod(0o755)
    (tmp_path / "data").chmod(0o644)
    with either.create(SandboxSpec(mounts=(Mount(str(tmp_path), "/given"),))) as box, box.fork()[0] as child:
        for one in (box, child):
            assert one.read_file("/given/data") == b"from outside"
            assert not one.exec("touch /given/new").ok


def test_an_image_with_nothing_in_it_is_served_too(either):
    with create("docker"):
        pass  # so that the daemon has this image
    with either.create(SandboxSpec(image="forkgym:empty")) as box:
        box.write_file("dir/file", b"data")
        result = box.exec("true")
        assert (result.exit_code, result.stderr) == (127, b"sandbox: bash: command not found\n")
        with box.fork()[0] as child:
            child.write_file("dir/more", b"")
            assert child.read_file("dir/file") == b"data"
            assert [entry.name for entry in child.list_dir("dir")] == ["file", "more"]
        assert [entry.name for entry in box.list_dir("dir")] == ["file"]


# States


def test_snapshots_of_one_mode_are_restored_by_the_other(daemon):
    for one, other in (MODES, MODES[::-1]):
        with backend(fork=one).create(SandboxSpec()) as box:
            box.shell().run("echo kept >file; cd /tmp")
            snapshot = box.snapshot(f"by {one}")
        second = backend(fork=other)
        assert snapshot in second.snapshots()
        with second.create(SandboxSpec(), snapshot=snapshot.id) as copy:
            assert copy.read_file("file") == b"kept\n"
            assert copy.shell().run("pwd").stdout == b"/tmp\n"
        second.delete_snapshot(snapshot.id)
        assert snapshot not in second.snapshots()
        with pytest.raises(SnapshotError):
            second.delete_snapshot(snapshot.id)


def test_a_name_that_an_image_cannot_hold_is_refused_and_not_lost(daemon):
    with backend(fork="commit").create(SandboxSpec()) as box:
        box.exec("touch .wh.file")
        with pytest.raises(SandboxError, match=r"/work/\.wh\.file: rename it"):
            box.fork()
        with pytest.raises(SandboxError, match=r"rename it"):
            box.snapshot()
        assert box.exec("mv .wh.file file; ls").stdout == b"file\n"
        box.fork()[0].close()


def test_chains_of_commits_are_flattened_and_leave_no_image(daemon, monkeypatch):
    from forkgym.sandboxes.docker import commits

    monkeypatch.setattr(commits, "_FLATTEN_AT", 4)
    before = images("forkgym-fork")
    box = backend(fork="commit").create(SandboxSpec())
    for number in range(6):
        box.exec(f"echo {number} >>log; touch gone{number}; rm -f gone{number - 1}")
        (child,) = box.fork()
        box.close()
        box = child
        assert int(docker("inspect", "-f", "{{len .RootFS.Layers}}", image(box))) <= 4
    assert box.exec("cat log; ls").stdout == b"0\n1\n2\n3\n4\n5\ngone5\nlog\n"
    assert box.exec("stat -c %u log").stdout == b"1000\n"
    box.close()
    cleanup.wait()
    wait_until(lambda: images("forkgym-fork") <= before)


def test_forks_find_a_container_ready(daemon):
    host = backend(fork="overlay", spares=1)
    with host.create(SandboxSpec()) as box:
        config = container(box).config
        box.fork()[0].close()
        wait_until(lambda: host._spares.ready(config) == 1)
        known = containers_of(os.getpid())
        with box.fork()[0] as child:
            assert container(child).name in known
    wait_until(lambda: host._spares.ready(config) == 0)


# Failures


def test_an_unknown_image_is_never_pulled_and_the_message_says_how_to_make_it(either):
    with pytest.raises(ImageError, match=r"'no-such-image'.*forkgym images build no-such-image"):
        either.create(SandboxSpec(image="no-such-image"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["", "../../etc", "HOST", "a b", "x:y:z"])
def test_what_no_image_can_be_called_is_an_unknown_image(either, name):
    with pytest.raises(ImageError, match=repr(name)):
        either.create(SandboxSpec(image=name))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_daemon_that_is_not_there(tmp_path):
    with pytest.raises(SandboxUnavailableError, match=r"no docker daemon answers \([A-Z][a-z ]+\): start it"):
        backend(url=f"unix://{tmp_path}/socket").create(SandboxSpec())
    gc.collect()  # docker's SDK leaves the socket of a failed connection to it; so no later test is blamed


def test_a_daemon_at_a_port_of_this_machine(daemon):
    with SlowDaemon(None, b"nothing", 0.0) as port:
        with backend(url=port.url).create(SandboxSpec()) as box:
            box.exec("echo 1 > file")
            with box.fork()[0] as child:
                assert child.exec("cat file").stdout == b"1\n"
        cleanup.wait()


def test_a_container_killed_from_outside_is_a_dead_sandbox_and_never_a_fresh_one(either):
    with either.create(SandboxSpec()) as box, either.create(SandboxSpec()) as other:
        box.exec("echo x >file")
        running = threading.Thread(target=lambda: errors.append(_error(lambda: box.exec("sleep 60"))))
        errors = []
        running.start()
        docker("kill", container(box).name)
        running.join(60)
        assert isinstance(errors[0], SandboxDeadError)
        assert not box.alive
        for call in (lambda: box.exec("true"), lambda: box.read_file("file"), box.fork, box.snapshot):
            assert isinstance(_error(call), SandboxDeadError)
        assert other.exec("echo on").stdout == b"on\n"


def _error(call):
    try:
        call()
    except Exception as error:
        return error
    return None


class SlowDaemon:
    """Passes everything on to the real daemon, but answers one kind of request ``delay`` seconds late.

    Listens at ``path``, or without one at a port of the loopback.
    """

    def __init__(self, path, request, delay):
        self._request, self._delay = request, delay
        self._sockets = [socket.socket(socket.AF_UNIX if path else socket.AF_INET)]
        self._sockets[0].bind(str(path) if path else ("127.0.0.1", 0))
        self.url = f"unix://{path}" if path else f"tcp://127.0.0.1:{self._sockets[0].getsockname()[1]}"
        self._sockets[0].listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, real, slow = self._sockets[0].accept()[0], socket.socket(socket.AF_UNIX), threading.Event()
                self._sockets += [client, real]
                real.connect("/var/run/docker.sock")
                for pair in ((client, real, slow.set, None), (real, client, None, slow.is_set)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source, target, note, is_slow):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if note and self._request in data:
                    note()
                if is_slow and is_slow():
                    time.sleep(self._delay)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("request_line", [b"/containers/create", b"/start"])
def test_a_reply_that_comes_too_late_leaves_no_container(tmp_path, request_line):
    create("docker").close()
    cleanup.wait()
    before = containers_of(os.getpid())
    with SlowDaemon(tmp_path / "socket", request_line, 10) as daemon:
        slow = backend(url=daemon.url, patience=3)
        with pytest.raises(SandboxTimeoutError, match="did not answer in time"):
            slow.create(SandboxSpec())
        time.sleep(3)  # by now the daemon has done what was asked of it
        slow.gc()
        wait_until(lambda: containers_of(os.getpid()) <= before)


def test_a_late_reply_within_the_patience_is_waited_for(tmp_path):
    with SlowDaemon(tmp_path / "socket", b"/containers/create", 3) as daemon:
        with backend(url=daemon.url).create(SandboxSpec()) as box:
            assert box.exec("echo served").stdout == b"served\n"
        cleanup.wait()


# Owners

OWNER = """
import sys
from forkgym.sandboxes.base import SandboxSpec
from forkgym.sandboxes.docker.backend import DockerBackend
backend = DockerBackend(fork=sys.argv[1])
box = backend.create(SandboxSpec())
box.exec("echo kept >file; (setsid sleep 600 &)")
children = box.fork(2)
print(box.snapshot().id, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def owner(mode):
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, next(process.stdout).strip()
        finally:
            process.kill()


def boxes(own_state):
    return {path.name for path in (own_state / "boxes").iterdir()}


@pytest.mark.parametrize("mode", MODES)
def test_a_killed_owner_leaves_nothing_but_its_snapshot(daemon, own_state, mode):
    cleanup.wait()
    before, forks = boxes(own_state), images("forkgym-fork")
    with owner(mode) as (process, snapshot):
        assert len(containers_of(process.pid)) >= 3
        process.kill()
        process.wait()
        wait_until(lambda: not docker("ps", "-q", "--filter", f"name={'|'.join(containers_of(process.pid)) or '-'}"))
        host = backend(fork=mode)
        host.gc()
        wait_until(lambda: not containers_of(process.pid))
        assert boxes(own_state) <= before
        assert set(images("forkgym-fork")) <= set(forks)
        assert "/boxes/" not in Path("/proc/self/mounts").read_text()
        with host.create(SandboxSpec(), snapshot=snapshot) as box:
            assert box.read_file("file") == b"kept\n"
        host.delete_snapshot(snapshot)


def test_what_a_living_owner_has_is_left_alone(daemon):
    with owner("overlay") as (process, snapshot):
        mine = containers_of(process.pid)
        backend().gc()
        assert mine <= containers_of(process.pid)
        backend().delete_snapshot(snapshot)


def test_closing_leaves_no_container_file_or_descriptor(either, own_state):
    def use():
        box = either.create(SandboxSpec())
        box.shell().run("echo x >file; sleep 600 &")
        for one in (box, *box.fork(2)):
            one.close()
        wait_until(lambda: not containers_of(os.getpid()))
        cleanup.wait()
        return boxes(own_state), len(os.listdir("/proc/self/fd"))

    use()  # opens connections to the daemon, which are kept for later and may still become a few more
    left, descriptors = use()
    rounds = [use() for _ in range(4)]
    assert all(found <= left for found, _ in rounds)
    assert rounds[-1][1] < descriptors + len(rounds)


def test_many_at_once_all_start(daemon):
    boxes = []
    lock = threading.Lock()

    def start():
        box = host.create(SandboxSpec(limits=Limits(memory=64 << 20)))
        with lock:
            boxes.append(box)

    host = backend()
    threads = [threading.Thread(target=start) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({box.exec(["cat", "/proc/self/cgroup"]).stdout for box in boxes}) == 24
    for box in boxes:
        box.close()

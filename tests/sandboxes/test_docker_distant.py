"""The docker backend where all goes through the daemon's API: what differs when the daemon is on another machine.

A tunnel at an address of this machine that is not its usual loopback stands in for that machine.
"""

import contextlib
import errno
import json
import os
import platform
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from dataclasses import asdict

import pytest

from forkgym.errors import ConfigError
from forkgym.sandboxes import backend as find_backend
from forkgym.sandboxes import create
from forkgym.sandboxes.base import Limits, Mount, SandboxSpec
from forkgym.sandboxes.errors import (
    ImageError,
    SandboxDeadError,
    SandboxError,
    SandboxFileError,
    SandboxUnavailableError,
)
from forkgym.sandboxes.guest import frames, wire
from forkgym.sandboxes.local import cleanup
from forkgym.sandboxes.owner.reply import Reply
from forkgym.sandboxes.state import Owner

pytestmark = pytest.mark.usefixtures("daemon")
ADDRESS = "127.0.0.2"


class Tunnel:
    """Carries connections to the daemon here. ``cut`` ends them all; ``hold`` keeps them, but passes nothing on."""

    def __init__(self, context=None):
        self._context = context
        self._flows = threading.Event()
        self._flows.set()
        self._sockets = []
        self._listener = socket.create_server((ADDRESS, 0), backlog=64)
        self.url = f"tcp://{ADDRESS}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        cleanup.wait()
        self._flows.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self):
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def hold(self):
        self._flows.clear()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._carry, args=(self._listener.accept()[0],), daemon=True).start()

    def _carry(self, client):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            stack.enter_context(client)
            if self._context is not None:
                client = stack.enter_context(self._context.wrap_socket(client, server_side=True))
            real = stack.enter_context(socket.socket(socket.AF_UNIX))
            real.connect("/var/run/docker.sock")
            self._sockets += [client, real]
            while True:
                ready = [client] if getattr(client, "pending", int)() else select.select([client, real], [], [])[0]
                self._flows.wait()
                for source in ready:
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    (real if source is client else client).sendall(data)


@pytest.fixture
def tunnel():
    with Tunnel() as tunnel:
        yield tunnel


@pytest.fixture(scope="module")
def image(daemon):
    """An image of the daemon with a few programs of this machine."""
    import docker

    from forkgym.sandboxes.bench.baseline import Baseline

    with contextlib.closing(docker.from_env()) as client, contextlib.closing(Baseline(client)) as made:
        yield made.name


@pytest.fixture(scope="module")
def near(daemon):
    """The daemon of this host, but spoken with as if it were elsewhere."""
    return find_backend("docker", via="api")


def docker_says(*arguments):
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout


def container(box):
    return box._container


def containers_of(pid):
    lines = docker_says("ps", "-a", "--filter", "label=forkgym", "--format", '{{.Names}} {{.Label "forkgym"}}')
    owners = {name: json.loads(label)["owner"]["pid"] for name, label in (x.split(" ", 1) for x in lines.splitlines())}
    return {name for name, owner in owners.items() if owner == pid}


def owners_of_images():
    from forkgym.sandboxes.docker.engine import Engine

    return {json.loads(labels["forkgym"])["owner"]["pid"] for _, labels in Engine().images("forkgym")}


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited 60 s in vain"
        time.sleep(0.05)


def error_of(call):
    try:
        call()
    except Exception as error:
        return error
    return None


# Another machine


def test_a_daemon_at_another_address_shares_nothing_with_us(tunnel, image, tmp_path):
    backend = find_backend("docker", url=tunnel.url)
    with backend.create(SandboxSpec(image=image, limits=Limits(memory=256 << 20))) as box:
        found = json.loads(docker_says("inspect", container(box).name))[0]
        assert not found["HostConfig"]["Binds"]
        assert [(mount["Type"], mount["RW"]) for mount in found["Mounts"]] == [("volume", False)]
        assert found["HostConfig"]["NetworkMode"] == "none"
        box.shell().run("X=5; cd /; echo from shell >/work/file")
        assert box.exec("echo a; echo b >&2; exit 4").exit_code == 4
        assert box.read_file("file") == b"from shell\n"
        snapshot = box.snapshot("far")
        box.write_file("file", b"later")
        with box.fork()[0] as child:
            assert child.read_file("file") == b"later"
            assert child.shell().run("echo $X; echo $PWD").stdout == b"5\n/\n"
    try:
        assert snapshot in backend.snapshots()
        with find_backend("docker", via="api").create(SandboxSpec(), snapshot=snapshot.id) as again:
            assert again.read_file("file") == b"from shell\n"
    finally:
        backend.delete_snapshot(snapshot.id)


def test_what_only_this_machine_has_is_refused(tunnel, image, tmp_path):
    backend = find_backend("docker", url=tunnel.url)
    can = backend.capabilities()
    assert (can.tier, can.fork, set(can.unenforced)) == ("commit", True, {"disk"})
    with pytest.raises(ImageError, match="'host' is this machine's"):
        backend.create(SandboxSpec())
    with pytest.raises(ConfigError, match=r"directories of this machine.*upload"):
        backend.create(SandboxSpec(image=image, mounts=(Mount(str(tmp_path), "/given"),)))


def test_a_tunnel_is_known_by_the_machine_behind_it(monkeypatch):
    from forkgym.sandboxes.docker.engine import Engine

    assert Engine().local
    monkeypatch.setattr(platform, "node", lambda: "elsewhere")
    assert not Engine().local


def test_a_daemon_of_another_kind_of_machine_is_named(near, monkeypatch):
    from forkgym.sandboxes.docker import toolbox

    monkeypatch.setattr(toolbox, "fingerprint", lambda: "none")
    monkeypatch.setattr(platform, "machine", lambda: "s390x")
    with pytest.raises(SandboxUnavailableError, match=r"linux on .*this machine's, for linux on s390x"):
        near.create(SandboxSpec())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"via": "telnet"}, "'telnet'; allowed: auto, socket, api"),
        ({"via": "api", "fork": "overlay"}, "use fork='commit'"),
        ({"host": "x"}, "unexpected keyword argument 'host'; it takes .*url"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        find_backend("docker", **options)


def test_options_may_follow_the_name(tunnel, image):
    with create(f"docker?url={tunnel.url}&spares=0", image=image) as box:
        assert container(box).distant
    with pytest.raises(ConfigError, match="'via' is not option=value"):
        find_backend("docker?via")


def test_ssh_is_answered_with_the_way_to_do_it():
    with pytest.raises(SandboxUnavailableError, match=r"ssh -nNT -L .*unix:///tmp/docker.sock"):
        find_backend("docker", url="ssh://somewhere").create(SandboxSpec())


def test_nobody_listens():
    with socket.create_server((ADDRESS, 0)) as closed:
        url = f"tcp://{ADDRESS}:{closed.getsockname()[1]}"
    with pytest.raises(SandboxUnavailableError, match=r"no docker daemon answers \(Connection refused\)"):
        find_backend("docker", url=url).create(SandboxSpec())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with")
def test_an_encrypted_connection(image, tmp_path, monkeypatch):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subject = ["-subj", "/CN=forkgym test", "-addext", f"subjectAltName=IP:{ADDRESS}"]
    made = ["-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", "-x509", *made, *subject], check=True, capture_output=True)
    shutil.copy(certificate, tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # would go before ours
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    with Tunnel(context) as tunnel:
        with find_backend("docker", url=tunnel.url).create(SandboxSpec(image=image)) as box:
            data = os.urandom(3 << 20)
            box.write_file("large", data)
            assert box.read_file("large") == data
            assert box.exec(["bash", "-c", "echo $((6 * 7))"]).stdout == b"42\n"
        cleanup.wait()


# What passes through


def test_long_and_large_things_pass_whole(near, tmp_path):
    data = os.urandom(5 << 20)
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "sub" / "program").write_bytes(data)
    (tmp_path / "in" / "sub" / "program").chmod(0o755)
    (tmp_path / "in" / "link").symlink_to("sub/program")
    with near.create(SandboxSpec()) as box:
        assert box.exec("cat", stdin=data, max_output=None).stdout == data
        shell = box.shell()
        for length in (10, 20_000, 300_000):  # the last two are longer than what is sent in the script itself
            assert shell.run(f"printf %s {'x' * length} | wc -c").stdout == b"%d\n" % length
        box.upload(tmp_path / "in", "there")
        box.exec("mkfifo there/pipe")
        box.download("there", tmp_path / "out")
        assert (tmp_path / "out" / "sub" / "program").read_bytes() == data
        assert os.access(tmp_path / "out" / "sub" / "program", os.X_OK)
        assert sorted(os.listdir(tmp_path / "out")) == ["sub"]
        assert box.exec("readlink there/link").stdout == b"sub/program\n"
        count = 20_000
        box.exec(f"mkdir many; cd many; seq {count} | xargs touch", timeout=60)
        assert len(box.list_dir("many")) == count


def test_what_is_larger_than_a_file_may_be_is_refused(near):
    with near.create(SandboxSpec(limits=Limits(disk=1 << 20))) as box:
        for size in (1_500_000, 5_000_000):
            with pytest.raises(SandboxFileError) as raised:
                box.write_file("large", bytes(size))
            assert raised.value.errno == errno.EDQUOT
            assert box.exec("true", stdin=bytes(size)).exit_code == 126
        box.write_file("small", bytes(1_000_000))
        assert box.exec("wc -c <small").stdout == b"1000000\n"


def test_a_flood_and_what_comes_after_it_arrive_in_order(near):
    with near.create(SandboxSpec()) as box:
        result = box.exec("yes | head -c 30000000; echo end", max_output=100)
        assert (result.total_bytes, result.stdout[-4:]) == (30_000_004, b"end\n")
        shell = box.shell()
        for number in range(50):
            size = 1000 * number
            assert len(shell.run(f"head -c {size} /dev/zero").stdout) == size
        errors = box.exec("for i in 1 2 3 4 5; do echo out; echo err >&2; done")
        assert (errors.stdout, errors.stderr) == (b"out\n" * 5, b"err\n" * 5)


def test_who_prints_on_in_the_background_is_neither_stopped_nor_killed(near):
    with near.create(SandboxSpec()) as box:
        box.exec("(for i in $(seq 300); do head -c 10000 /dev/zero; done; touch done) &")
        box.shell().run("(sleep 0.2; head -c 100000 /dev/zero; touch later) &")
        wait_until(lambda: box.exec("ls").stdout == b"done\nlater\n" or box.shell().run(":").total_bytes < 0)
        assert box.exec("(sleep 0.2; head -c 1000000 /dev/zero; touch asroot) & :", user="root").ok
        wait_until(lambda: b"asroot" in box.exec("ls").stdout)


def test_a_timeout_ends_what_the_command_started_and_nothing_older(near):
    with near.create(SandboxSpec()) as box:
        shell = box.shell()
        shell.run("sleep 1001 & sleep 0.05")  # the kernel dates processes to a hundredth of a second
        assert shell.run("setsid -f sleep 1002; sleep 1003", timeout=0.5).timed_out
        assert box.exec("setsid -f sleep 1004; sleep 1005", timeout=0.5, user="root").timed_out
        assert box.exec("setsid -f sleep 1006; sleep 1007", timeout=0.5).timed_out
        table = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null; done"
        assert [word for word in box.exec(table).stdout.split() if word.startswith(b"100")] == [b"1001"]


def test_root_inside_is_as_weak_as_elsewhere(near):
    with near.create(SandboxSpec()) as box:
        assert box.exec("id -u; echo made >/by-root; cat", user="root", stdin=b"in").stdout == b"0\nin"
        assert not box.exec("mount -t tmpfs none /mnt", user="root").ok
        assert not box.exec("mknod /tmp/disk b 8 0", user="root").ok
        assert not box.exec("touch /.forkgym/start.py || echo x >/.forkgym/start.py", user="root").ok
        capabilities = box.exec("grep Cap /proc/self/status").stdout.decode().split()[1::2]
        assert set(capabilities) == {"0" * 16}
        for path in ("/proc/1/mem", "/proc/1/environ", "/proc/1/fd", "/proc/1/root"):
            assert not box.exec(f"ls -l {path}/ || cat {path}").ok, path
        with box.fork()[0] as child:
            assert child.exec("cat /by-root").stdout == b"made\n"


def test_many_sandboxes_and_threads_at_once(near):
    boxes, failures = [], []
    lock = threading.Lock()

    def work(number):
        try:
            box = near.create(SandboxSpec(limits=Limits(memory=64 << 20)))
            with lock:
                boxes.append(box)
            for turn in range(10):
                assert box.exec(f"echo {number} {turn}").stdout == b"%d %d\n" % (number, turn)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sum("forkgym-bridge" in thread.name for thread in threading.enumerate()) == 1
    for box in boxes:
        box.close()


# Ends


def test_a_lost_connection_is_a_dead_sandbox(tunnel, image):
    before = containers_of(os.getpid())
    box = find_backend("docker", url=tunnel.url).create(SandboxSpec(image=image))
    shell = box.shell()
    shell.run("true")
    failures = []
    calls = [lambda: box.exec("sleep 600", timeout=600), lambda: shell.run("sleep 600", timeout=600)]
    running = [threading.Thread(target=lambda call=call: failures.append(error_of(call))) for call in calls]
    for thread in running:
        thread.start()
    wait_until(lambda: (box.usage().pids or 0) > 4)
    tunnel.cut()
    for thread in running:
        thread.join(60)
    assert [type(failure) for failure in failures] == [SandboxDeadError] * 2
    assert not box.alive
    for call in (lambda: box.exec("true"), lambda: box.read_file("x"), lambda: box.exec("true", user="root"), box.fork):
        assert isinstance(error_of(call), SandboxDeadError)
    assert "connection" in str(error_of(lambda: box.read_file("x")))
    box.close()
    wait_until(lambda: containers_of(os.getpid()) <= before)  # nobody had to remove it


def test_a_connection_that_falls_silent_is_noticed(tunnel, image, monkeypatch):
    from forkgym.sandboxes.docker import bridge, link

    monkeypatch.setattr(bridge, "_PULSE", 0.1)
    monkeypatch.setattr(link, "_CALL_AFTER", 0.2)
    monkeypatch.setattr(link, "_SILENCE", 3.0)
    with find_backend("docker", url=tunnel.url).create(SandboxSpec(image=image)) as box:
        assert box.exec("sleep 5").ok  # longer than the silence that is taken for death
        tunnel.hold()
        with pytest.raises(SandboxDeadError, match="nothing was heard of the container"):
            box.exec("true", timeout=600)
        tunnel._flows.set()


def test_a_sandbox_ends_at_its_wall_limit_and_every_call_says_so(near):
    with near.create(SandboxSpec(limits=Limits(wall=3.0))) as box, near.create(SandboxSpec()) as other:
        shell = box.shell()
        for call in (
            lambda: box.exec("sleep 60; echo"),
            lambda: box.exec("true", user="root"),
            lambda: shell.run("true"),
            lambda: box.read_file("/etc/passwd"),
            box.fork,
            box.snapshot,
        ):
            with pytest.raises(SandboxDeadError, match="wall=3 seconds"):
                call()
        assert other.exec("echo on").stdout == b"on\n"


def test_a_mistake_in_one_connection_leaves_the_others_alone(near, monkeypatch):
    from forkgym.sandboxes.docker import link

    with near.create(SandboxSpec()) as box, near.create(SandboxSpec()) as other:
        with monkeypatch.context() as patch:
            patch.setattr(link.Link, "_adopt", lambda *_: 1 / 0)
            with pytest.raises(SandboxDeadError, match="ZeroDivisionError"):
                box.exec("true")
        assert other.exec("echo on").stdout == b"on\n"


def test_a_container_killed_from_outside(near):
    with near.create(SandboxSpec()) as box:
        docker_says("kill", container(box).name)
        wait_until(lambda: not box.alive)
        with pytest.raises(SandboxDeadError, match="the connection to the container ended"):
            box.exec("true")


OWNER = """
import os, sys
from forkgym.sandboxes import backend
from forkgym.sandboxes.base import SandboxSpec
box = backend("docker", via="api").create(SandboxSpec())
box.exec("(setsid sleep 600 &)")
child = box.fork()[0]
helper = os.fork()
if helper == 0:
    os.execv("/bin/sleep", ["sleep", "300"]) if sys.argv[1] == "program" else os.read(0, 1)
print(helper, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("helper", ["program", "fork"])
def test_a_killed_owner_leaves_no_container_even_if_its_children_live(near, helper):
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, helper], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert len(containers_of(process.pid)) == 2
        assert process.pid in owners_of_images()
        process.kill()
        process.wait()
        wait_until(lambda: not containers_of(process.pid))
        os.kill(child, signal.SIGKILL)
    near.gc()
    assert process.pid not in owners_of_images()


def test_closing_leaves_no_container_or_descriptor(near):
    def use():
        with near.create(SandboxSpec()) as box:
            box.shell().run("sleep 600 & echo x >file")
            box.exec("true", user="root")
            box.read_file("file")
            box.fork()[0].close()
        cleanup.wait()
        wait_until(lambda: not containers_of(os.getpid()))
        return len(os.listdir("/proc/self/fd"))

    use()  # opens connections to the daemon, which are kept for later
    before = use()
    assert [use() - before for _ in range(3)][-1] < 3


def test_a_toolbox_that_somebody_removed_is_sent_again(near):
    from forkgym.sandboxes.docker import toolbox

    near.create(SandboxSpec()).close()
    cleanup.wait()
    docker_says("rm", "-v", f"forkgym-toolbox-{toolbox.fingerprint()}")
    with near.create(SandboxSpec()) as box:
        assert box.exec("true").ok


def test_toolboxes_of_other_versions_go_with_their_senders(near):
    from forkgym.sandboxes.docker import images
    from forkgym.sandboxes.docker.engine import Engine

    engine, mine = Engine(), asdict(Owner.current())
    gone = {**mine, "pid": 1 << 22, "start": 1}  # beyond the largest process id
    elsewhere = {**gone, "boot": "another", "host": f"{platform.node()}/another"}
    names = {f"forkgym-toolbox-{key}": owner for key, owner in (("a1", mine), ("b2", gone), ("c3", elsewhere))}
    try:
        for name, owner in names.items():
            about = json.dumps({"kind": "toolbox", "owner": owner})
            engine.hold(name, images.empty(engine), {"forkgym-toolbox": about})
        near.gc()
        assert [engine.has_container(name) for name in names] == [True, False, True]
    finally:
        for name in names:
            engine.remove(name)


# Whatever the other end says


class FakeStream:
    """One end of a pair of sockets in the place of a container."""

    complaint = b""

    def __init__(self):
        self._socket, self.other = socket.socketpair()
        self._socket.setblocking(False)

    def fileno(self):
        return self._socket.fileno()

    def send(self, data: memoryview):
        return self._socket.send(data)

    def receive(self):
        return self._socket.recv(1 << 18) or None

    def close(self):
        self._socket.close()


@pytest.mark.parametrize(
    "said",
    [
        b"OCI runtime exec failed: no such file",
        frames.encode(frames.REPLY, 0, 0, b"{"),
        frames.encode(frames.DATA, 0, 0, b"x" * (1 << 20)) * 90,
        frames.encode(frames.FILE, 0, 0, b"x" * (1 << 20)) * 90,
    ],
    ids=["text", "broken message", "flood", "endless answer"],
)
def test_nonsense_ends_the_connection_and_hurts_nobody(said):
    from forkgym.sandboxes.docker.bridge import bridge

    stream = FakeStream()
    link = bridge().connect(stream)
    reading, writing = os.pipe()
    with stream.other:
        reply = Reply(link.socket, {"op": "exec"}, [writing], link.death)
        os.close(writing)
        assert stream.other.recv(1 << 16)
        with contextlib.suppress(OSError):
            stream.other.sendall(said)
        with pytest.raises(SandboxError, match="cannot mean"):
            reply.next(60)
        reply.close()
    os.close(reading)
    link.close()


def test_frames_are_cut_where_they_end_however_they_arrive():
    sent = [frames.Frame(frames.DATA, 7, 2, b"abc"), frames.Frame(frames.EOF, 1 << 31, 255, b"")]
    stream = b"".join(frames.encode(*frame) for frame in sent)
    assert len(stream) == 2 * 10 + 3
    for size in (1, 3, 11, 100):
        parser = frames.Parser()
        pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
        assert [frame for piece in pieces for frame in parser.feed(piece)] == sent


def test_wire_files_hold_what_they_were_given():
    with open(wire.memory_file(memoryview(b"abcdef")[2:4]), "rb") as file:
        assert file.read() == b"cd"

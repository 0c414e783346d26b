"""Who dies with whom: sandboxes, zygote, trainer and its forked children; and what sandboxes know of the host."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from forkgym.errors import ConfigError
from forkgym.sandboxes import Mount, create
from forkgym.sandboxes.errors import ImageError, SandboxDeadError, SandboxError, SandboxLimitError
from forkgym.sandboxes.local import cleanup, launcher
from forkgym.sandboxes.local.backend import LocalBackend
from forkgym.sandboxes.local.cgroups import Group
from forkgym.sandboxes.local.sandbox import LocalSandbox

SLEEPER = f"sleep 6{os.getpid()}{{}}".format  # a command line that names this test, and this run of it


def running(word):
    """Processes of the host with this in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes().replace(b"\0", b" ") and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def soon(condition):
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def gone_soon(word):
    return soon(lambda: not running(word))


@contextlib.contextmanager
def trainer(word, more=""):
    """A process with a sandbox in which two sleepers run."""
    program = f"""
import os, time
from forkgym.sandboxes import create
box = create("local")
box.shell().run(os.environ["WORD"] + " & " + os.environ["WORD"] + " &")
{more}
print("up", flush=True)
time.sleep(60)
"""
    environment = {**os.environ, "WORD": word}  # not in its own command line, which would look like a sleeper's
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            yield process
        finally:
            process.kill()


def test_a_killed_trainer_takes_its_sandboxes_along():
    with trainer(SLEEPER(101)) as process:
        assert soon(lambda: len(running(SLEEPER(101))) == 2)
        process.kill()
        assert gone_soon(SLEEPER(101))


def test_a_child_that_the_trainer_forked_does_not_keep_them_alive():
    more = "if os.fork() == 0: time.sleep(8); os._exit(0)"
    with trainer(SLEEPER(102), more) as process:
        process.kill()
        assert gone_soon(SLEEPER(102))


def test_sandboxes_die_with_the_zygote_and_the_next_create_starts_another():
    box = create("local")
    box.shell().run(SLEEPER(103) + " &")
    first = launcher.zygote()
    os.kill(first._process.pid, signal.SIGKILL)
    assert gone_soon(SLEEPER(103))
    assert soon(lambda: not box.alive)
    with pytest.raises(SandboxDeadError):
        box.exec("true")
    box.close()
    with create("local") as other:
        assert other.exec("echo on").stdout == b"on\n"
        assert launcher.zygote() is not first


def test_an_interrupt_from_the_terminal_reaches_neither_zygote_nor_sandbox():
    with create("local") as box:
        zygote = launcher.zygote()._process.pid
        assert os.getpgid(zygote) != os.getpgid(0)
        assert os.getsid(zygote) != os.getsid(0)
        os.kill(zygote, signal.SIGINT)
        assert box.exec("echo on").stdout == b"on\n"
        assert launcher.zygote()._process.pid == zygote


def test_ctrl_c_during_a_command_kills_it_and_leaves_the_sandbox_good():
    program = f"""
import signal
from forkgym.sandboxes import create
box = create("local")
shell = box.shell()
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a script started the tests with "&"
for run in (box.exec, shell.run):
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        run("{SLEEPER(104)}", timeout=30)
    except KeyboardInterrupt:
        print("stopped", flush=True)
    print(box.exec("pgrep -fc '[s]{SLEEPER(104)[1:]}'").stdout.decode().strip(), shell.run("echo on").stdout)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "stopped\n0 b'on\\n'\n" * 2
    assert not running(SLEEPER(104))


def child_of_multiprocessing(box, queue):
    try:
        box.exec("true")
        queue.put("the parent's sandbox answered")
    except SandboxDeadError as error:
        queue.put(str(error))
    with create("local") as own:
        queue.put(own.exec("echo own").stdout)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_starts_a_zygote_of_its_own():
    with create("local") as box:
        context = multiprocessing.get_context("fork")
        queue = context.SimpleQueue()
        process = context.Process(target=child_of_multiprocessing, args=(box, queue))
        process.start()
        assert "belongs to the process that created it" in queue.get()
        assert queue.get() == b"own\n"
        process.join()
        assert box.exec("echo on").stdout == b"on\n"
        process.close()


def test_closing_leaves_no_descriptor_and_no_directory():
    create("local").close()
    cleanup.wait()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with create("local") as box:
            box.shell().run("sleep 5 & cd /tmp")
            box.exec("sleep 5 & true")
            box.write_file("a", b"")
            box.fork()[0].close()
    cleanup.wait()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_sandbox_knows_nothing_of_the_host(monkeypatch):
    monkeypatch.setenv("TRAINER_SECRET", "s3cr3t-value")
    with create("local") as box:
        seen = box.exec(
            "cat /proc/mounts /proc/self/mountinfo /proc/*/cmdline /proc/*/environ /proc/self/cgroup /proc/cmdline;"
            "env; cat /proc/1/maps /proc/1/mem; readlink /proc/1/exe /proc/1/cwd /proc/1/root /proc/1/fd/*;"
            "ls -R /home /root /opt /srv /mnt /var",
            max_output=None,
        ).stdout.decode(errors="replace")
    ours = [path for path in (sys.prefix, sys.executable) if not path.startswith("/usr")]  # the rest is the image's too
    for private in ("s3cr3t", "forkgym", str(Path.cwd()), *ours, "boot.py"):
        assert private not in seen


def test_sandboxes_do_not_see_each_other():
    with create("local") as one, create("local") as two:
        one.exec("echo x > /dev/shm/x; echo x > /tmp/x; echo x > /dev/leak; nohup sleep 6105 >/dev/null 2>&1 &")
        assert two.exec("cat /dev/shm/x /tmp/x /dev/leak; pgrep -f '[s]leep 6105'").stdout == b""
        bind = "import socket, time; s = socket.socket(socket.AF_UNIX); s.bind(chr(0) + 'a'); time.sleep(9)"
        one.exec(f'python3 -c "{bind}" & sleep 0.3')
        connect = "import socket; socket.socket(socket.AF_UNIX).connect(chr(0) + 'a')"
        assert b"refused" in two.exec(["python3", "-c", connect]).stderr


def test_a_host_directory_can_be_shown_read_only(tmp_path):
    (tmp_path / "data").write_text("given")
    (tmp_path / "data").chmod(0o644)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    with create("local", mounts=[Mount(str(tmp_path), "/given")]) as box:
        assert box.exec("cat /given/data; echo x > /given/data").stdout == b"given"
        box.write_file("x", b"")
        with box.fork()[0] as child:
            assert child.read_file("/given/data") == b"given"
        assert box.exec("cat /given/data; touch /given/new").stdout == b"given"
    assert (tmp_path / "data").read_text() == "given"
    with pytest.raises(SandboxError, match="no-such"):
        create("local", mounts=[Mount(str(tmp_path / "no-such"), "/given")])


@pytest.mark.parametrize("busy", [False, True], ids=["exchanged", "copied"])
@pytest.mark.parametrize("kind", ["directory", "file"])
def test_a_link_in_the_way_of_a_mount_does_not_lead_to_the_host(own_state, kind, busy):
    given, victim = own_state.parent / f"given-{kind}-{busy}", own_state.parent / f"victim-{kind}-{busy}"
    given.mkdir() if kind == "directory" else given.write_text("")
    victim.mkdir()
    victim.chmod(0o777)  # as /tmp is, or as the home of an ordinary user is to that user's sandboxes
    with create("local", mounts=[Mount(str(given), "/work/sub/given")]) as box:
        running = "sleep 600 >/dev/null 2>&1 &" if busy else ""
        assert box.exec(f"{running} mv sub old; ln -s {victim} sub").ok
        with contextlib.suppress(SandboxError):  # a mount that finds no place may be refused
            box.fork()[0].close()
    assert list(victim.iterdir()) == []


def test_options_that_cannot_be_met_are_named():
    with pytest.raises(ImageError, match="debian:12"):
        create("local", image="debian:12")
    with pytest.raises(ConfigError, match="user is 'wheel'"):
        create("local", user="wheel")


def test_capabilities_say_what_holds():
    found = LocalBackend().capabilities()
    assert found.isolation == "namespaces"
    assert found.fork
    assert set(found.limits) | set(found.unenforced) == {"memory", "pids", "cpu", "disk", "open_files", "wall"}
    assert {"disk", "open_files", "wall"} <= set(found.limits)


def test_usage_counts():
    with create("local") as box:
        box.exec("head -c 3000000 /dev/urandom > big; python3 -c 'sum(range(3000000))'")
        usage = box.usage()
        assert usage.disk_bytes is not None
        assert 3_000_000 <= usage.disk_bytes < 4_000_000


def test_a_start_that_fails_early_leaves_a_zygote_that_starts_others(monkeypatch):
    """The child that could not join its group once went on as a second zygote, and answered every other request."""
    with monkeypatch.context() as patch:
        message = LocalSandbox._message
        patch.setattr(LocalSandbox, "_message", lambda box: message(box) | {"join": ["/dev/full"]})
        with pytest.raises(SandboxLimitError, match="No space left"):
            create("local")
    for _ in range(8):
        with create("local") as box:
            assert box.exec("echo on").stdout == b"on\n"


def test_a_first_process_that_dies_of_memory_is_told_as_such(monkeypatch):
    """On version 2 of control groups it cannot stay outside; the kernel's count is all that such a death leaves."""
    with create("local", limits={"memory": "64M"}) as box:
        assert isinstance(box, LocalSandbox)
        group = box._group or Group("none", {})
        monkeypatch.setattr(box, "_group", group)
        monkeypatch.setattr(group, "oom_kills", lambda: 1)
        os.kill(box._pid, signal.SIGKILL)
        assert soon(lambda: not box.alive)
        for call in (lambda: box.exec("true"), lambda: box.exec("true", user="root"), box.snapshot):
            with pytest.raises(SandboxDeadError, match="ran out of memory, its limit is memory=67108864 bytes"):
                call()


def test_a_state_directory_that_cannot_be_used_is_told_once(tmp_path):
    place = tmp_path / "file" / "state"
    place.parent.write_text("")
    program = "from forkgym.sandboxes import create; create('local')"
    environment = {**os.environ, "FORKGYM_STATE": str(place)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert done.stderr.splitlines()[-1].startswith("forkgym.sandboxes.errors.SandboxUnavailableError: no directory")
    assert "clean-up" not in done.stderr

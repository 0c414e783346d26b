"""Forks and snapshots of the local backend: what is copied, isolation, busy processes, long chains and life times."""

import json
import resource
import subprocess
import sys
import threading
import time

import pytest

from forkgym.sandboxes import create, state
from forkgym.sandboxes.errors import ForkBusyError, SandboxDeadError, SandboxError, SnapshotError
from forkgym.sandboxes.local import cleanup
from forkgym.sandboxes.local.backend import LocalBackend
from forkgym.sandboxes.local.sandbox import LocalSandbox, start_all
from forkgym.sandboxes.local.snapshots import Frozen

LIST = (
    "find /work /home/agent -type d -printf '%P d %m\\n' -o -printf '%P %y %m %s %l\\n' | sort;"
    "find /work -type f -print0 | sort -z | xargs -0r sha256sum"
)


@pytest.fixture
def box():
    with create("local") as sandbox:
        yield sandbox


def close_all(boxes):
    for each in boxes:
        each.close()


def layers_on_disk():
    cleanup.wait()
    return sorted(path.name for path in (state.state_dir() / "layers").iterdir())


def test_siblings_and_parent_start_equal_and_do_not_see_each_other(box):
    box.exec(
        "mkdir -p d/deep e; echo one > f; echo two > d/deep/g; ln -s f link; ln f hard; mkfifo p; chmod 751 d; echo >n"
    )
    box.fork()[0].close()
    box.exec("rm n; mv d moved; rm -r e; echo file > e; mkdir f.d; rm hard; touch -d 2001-01-01 f")
    before = box.exec(LIST).stdout
    children = box.fork(4)
    assert [child.exec(LIST).stdout for child in children] == [before] * 4
    for number, child in enumerate(children):
        child.exec(f"echo {number} > f; rm -r moved; mkdir moved; echo {number} > moved/only")
    box.exec("echo parent > f")
    assert [child.exec("cat f moved/only; ls moved").stdout for child in children] == [
        f"{number}\n{number}\nonly\n".encode() for number in range(4)
    ]
    assert box.exec("cat f moved/deep/g").stdout == b"parent\ntwo\n"
    close_all(children)


def test_grandchildren_outlive_all_their_ancestors_and_layers_go_with_the_last(box):
    kept = layers_on_disk()
    parent = box
    line = []
    for number in range(4):
        parent.write_file(f"f{number}", b"x")
        parent = parent.fork()[0]
        line.append(parent)
    last = line.pop()
    assert last.lineage == (box.id, *(each.id for each in line))
    for each in (line[1], box, line[0], line[2]):
        each.close()
    cleanup.wait()
    assert [entry.name for entry in last.list_dir(".")] == ["f0", "f1", "f2", "f3"]
    last.close()
    assert layers_on_disk() == kept


def test_shells_go_with_a_fork_and_the_parent_s_stays(box):
    shell, other = box.shell(), box.shell("other")
    shell.run("cd /tmp; export A=1; B=2; f() { echo f; }; alias g=f; sleep 0 & wait")
    other.run("cd /usr")
    box.write_file("x", b"")
    child = box.fork()[0]
    assert child.shell().run("pwd; echo $A $B; f; g").stdout == b"/tmp\n1 2\nf\nf\n"
    assert child.shell("other").run("pwd").stdout == b"/usr\n"
    assert shell.run("pwd; touch here; echo $A $B").stdout == b"/tmp\n1 2\n"
    assert shell.restarts == 0
    assert child.exec("ls /tmp").stdout == b""
    grandchild = child.fork()[0]
    assert grandchild.shell().run("echo $A $B; pwd").stdout == b"1 2\n/tmp\n"
    close_all([child, grandchild])


def test_a_shell_that_was_never_opened_in_a_child_still_reaches_the_grandchild(box):
    box.shell().run("cd /usr; export A=1")
    child = box.fork()[0]
    grandchild = child.fork()[0]
    assert grandchild.shell().run("pwd; echo $A").stdout == b"/usr\n1\n"
    close_all([child, grandchild])


def test_a_server_that_writes_goes_on_and_the_child_gets_a_copy(box):
    box.exec("(while :; do echo tick >> log; sleep 0.01; done) >/dev/null 2>&1 & sleep 0.2")
    child = box.fork()[0]
    lines = len(child.read_file("log"))
    assert lines > 0
    time.sleep(0.3)
    assert len(child.read_file("log")) == lines
    assert len(box.read_file("log")) > lines
    assert child.exec("pgrep -c sleep").exit_code == 1
    child.close()


def test_a_fork_beside_a_running_command_does_not_disturb_it(box):
    shell = box.shell()
    results = []
    runner = threading.Thread(target=lambda: results.append(shell.run("touch a; sleep 1; touch b; ls", timeout=20)))
    runner.start()
    time.sleep(0.5)
    child = box.fork()[0]
    runner.join()
    assert results[0].stdout == b"a\nb\n"
    assert child.exec("ls").stdout == b"a\n"
    child.close()


def test_the_caller_decides_about_processes_that_write(box):
    box.exec("(exec 9>held; sleep 9100) >/dev/null 2>&1 & sleep 0.2")
    with pytest.raises(ForkBusyError, match="background='copy'"):
        box.fork(background="fail")
    assert box.exec("pgrep -fc 'sleep 910[0]'").stdout == b"1\n"
    close_all(box.fork(background="copy"))
    assert box.exec("pgrep -fc 'sleep 910[0]'").stdout == b"1\n"
    close_all(box.fork(background="kill"))
    assert box.exec("pgrep -fc 'sleep 910[0]'").stdout == b"0\n"


def test_a_shell_that_holds_a_file_open_for_writing_is_copied(box):
    shell = box.shell()
    shell.run("exec 9>held; echo a >&9")
    child = box.fork()[0]
    shell.run("echo b >&9")
    assert (child.read_file("held"), box.read_file("held")) == (b"a\n", b"a\nb\n")
    with pytest.raises(ForkBusyError, match="shell"):
        box.fork(background="fail")
    child.close()


def test_stopped_processes_stay_stopped_and_others_run_on(box):
    box.exec("sleep 9200 & kill -STOP $!; sleep 9201 &", timeout=5)
    box.fork()[0].close()
    states = box.exec("ps -eo stat,args --no-headers | grep 'sleep 920[01]' | cut -c1 | sort").stdout
    assert states == b"S\nT\n"


def test_a_frozen_layer_never_changes(box):
    box.exec("mkdir d; for i in $(seq 50); do echo $i > d/$i; done; head -c 100000 /dev/urandom > big")
    snapshot = box.snapshot("first")
    before = box.exec(LIST).stdout
    box.exec("rm -r d; echo >> big; mkdir d; chmod 700 .; python3 -c \"open('big', 'r+b').write(b'x')\"")
    box.fork()[0].close()
    with create("local", snapshot=snapshot.id) as restored:
        assert restored.exec(LIST).stdout == before
        restored.exec("rm -rf *")
    with create("local", snapshot=snapshot.id) as restored:
        assert restored.exec(LIST).stdout == before
    LocalBackend().delete_snapshot(snapshot.id)


def test_a_finalizer_that_interrupts_a_holder_of_the_lock_does_not_wait_for_itself(box):
    """What was dropped without being closed is collected in whatever thread allocates next, also one with the lock."""
    root = state.state_dir()
    box.write_file("large", bytes(1000))
    snapshot = box.snapshot("dropped")
    box.close()
    cleanup.wait()
    layers = json.loads((root / "snapshots" / f"{snapshot.id}.json").read_text())["layers"]

    class Dropped:
        def __del__(self) -> None:
            LocalBackend().delete_snapshot(snapshot.id)

    with state.locked(root, exclusive=True):
        Dropped()
    assert not (root / "snapshots" / f"{snapshot.id}.json").exists()
    cleanup.wait()
    assert layers
    assert not any((root / "layers" / layer).exists() for layer in layers)


def test_another_process_restores_a_snapshot_after_its_maker_is_gone():
    program = """
import sys
from forkgym.sandboxes import create
box = create("local")
box.write_file("made", b"there")
box.shell().run("cd /tmp; export A=1")
print(box.snapshot("label").id)
"""
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    snapshot_id = made.stdout.strip()
    backend = LocalBackend()
    backend.gc()
    assert [(s.id, s.label) for s in backend.snapshots() if s.id == snapshot_id] == [(snapshot_id, "label")]
    with create("local", snapshot=snapshot_id) as box:
        assert box.read_file("made") == b"there"
        assert box.shell().run("pwd; echo $A").stdout == b"/tmp\n1\n"
        backend.delete_snapshot(snapshot_id)
        assert box.read_file("made") == b"there"
    with pytest.raises(SnapshotError, match=snapshot_id):
        create("local", snapshot=snapshot_id)
    with pytest.raises(SnapshotError, match="hexadecimal"):
        create("local", snapshot="../../etc/passwd")


@pytest.fixture
def step(box):
    """Freezes the state of the box as a fork does, without the cost of a child."""
    made = []
    yield lambda: made.append(box.snapshot())
    for snapshot in made:
        LocalBackend().delete_snapshot(snapshot.id)


def test_a_long_chain_is_merged_and_reads_as_before(box, step):
    box.exec("mkdir src keep; seq 9 > src/a")
    for number in range(34):
        change = f"echo {number} > src/f{number}; rm -f src/f{number - 3}; mv src x{number}; mv x{number} src"
        assert box.exec(change).ok
        if number == 20:
            box.exec("rm -r keep; mkdir keep; touch keep/new; chmod 700 keep; ln src/a hard; echo x > gone")
        if number == 25:
            box.exec("rm gone; mv keep kept")
        step()
    # Where a frozen directory cannot be renamed, mv copies it, and the link to a file in it is lost.
    linked = LocalBackend().capabilities().tier == "root"
    assert box.exec("test hard -ef src/a").ok == linked
    before = box.exec(LIST).stdout
    cleanup.wait()
    assert len(box._disk.layers) <= 3
    with box.fork()[0] as child:
        assert child.exec(LIST).stdout == before
    box.write_file("after", b"")
    step()
    cleanup.wait()
    assert box.exec("rm after; " + LIST).stdout == before
    assert box.exec("test hard -ef src/a").ok == linked


def test_a_renamed_directory_of_the_image_survives_many_freezes(box, step):
    moved = box.exec("mv /etc/skel /etc/moved && ls -A /etc/moved", user="root")
    assert moved.ok
    assert b".bashrc" in moved.stdout
    for number in range(34):
        box.write_file(f"f{number}", b"")
        step()
    cleanup.wait()
    with box.fork()[0] as child:
        assert child.exec("ls -A /etc/moved; ls /etc/skel", user="root").stdout == moved.stdout
        assert len(child.list_dir("/work")) == 34


@pytest.mark.parametrize("left", ["touch", "mkfifo", "ln -s /nowhere", "ln -s /etc", "true"])
def test_whatever_stands_for_the_working_directory_is_forked(left):
    with create("local", workdir="/home/agent/place") as box:
        owner = box.exec("stat -c %U /etc").stdout
        box.exec(f"rm -r place; {left} place", cwd="/home/agent")
        shown = "stat -c '%F %N' place; stat -c %U /etc"
        before = box.exec(shown, cwd="/home/agent").stdout
        with box.fork()[0] as child:
            expected = before if left != "true" else b"directory 'place'\n" + before
            assert child.exec(shown, cwd="/home/agent").stdout == expected
            assert expected.endswith(b"\n" + owner)  # root did not give the link's target away


def test_a_state_that_cannot_be_copied_is_told_and_leaves_nothing(box):
    deep = "import os\nfor _ in range(120):\n    os.mkdir('d' * 50)\n    os.chdir('d' * 50)"
    assert box.exec(["python3", "-c", deep]).ok
    box.exec("sleep 600 >/dev/null 2>&1 &")  # so that it has to be copied, and cp stops at PATH_MAX
    before = layers_on_disk()
    with pytest.raises(SandboxError, match=r"could not be frozen: .* could not be copied: .*File name too long"):
        box.fork()
    assert layers_on_disk() == before
    assert box.exec("pkill sleep; echo alive").stdout == b"alive\n"
    close_all(box.fork())


def test_a_tree_too_deep_to_be_walked_has_no_size_but_usage(box):
    deep = "import os\nfor _ in range(1000):\n    os.mkdir('d')\n    os.chdir('d')"
    assert box.exec(["python3", "-c", deep]).ok
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        assert box.usage().disk_bytes is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert box.exec("rm -r d").ok
    assert box.usage().disk_bytes is not None


def test_a_layer_that_was_deleted_meanwhile_is_a_snapshot_error(box):
    before = sorted((state.state_dir() / "boxes").iterdir())
    with pytest.raises(SnapshotError, match="its snapshot was deleted meanwhile"):
        start_all(box.spec, Frozen(layers=("0123456789abcdef",)), 1)
    cleanup.wait()
    assert sorted((state.state_dir() / "boxes").iterdir()) == before


def test_many_threads_fork_and_close_at_random():
    failures = []

    def work(number):
        try:
            with create("local") as mine:
                mine.write_file("who", str(number).encode())
                children = mine.fork(2)
                children[0].write_file("who", b"child")
                grandchild = children[1].fork()[0]
                children[1].close()
                if grandchild.read_file("who") != str(number).encode():
                    failures.append(number)
                close_all([grandchild, children[0]])
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_fork_whose_parent_is_closed_meanwhile_says_that_it_is_closed(monkeypatch):
    box = create("local")
    siblings = LocalSandbox._siblings

    def late(self, frozen, count):
        self.close()
        cleanup.wait()  # its layers are gone
        return siblings(self, frozen, count)

    box.write_file("x", b"1")
    monkeypatch.setattr(LocalSandbox, "_siblings", late)
    with pytest.raises(SandboxDeadError, match="was closed meanwhile"):
        box.fork()

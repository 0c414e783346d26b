import json
import os
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from forkgym.sandboxes import state
from forkgym.sandboxes.errors import SandboxTimeoutError, SandboxUnavailableError
from forkgym.sandboxes.state import Lease, Owner


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def in_another_process(code, root):
    """Start a python that runs ``code`` with ``root``, prints a line, and then waits; returns it after that line."""
    program = "import sys\nfrom pathlib import Path\nfrom forkgym.sandboxes import state\n"
    program += f"root = Path({str(root)!r})\n{code}\nprint('ready', flush=True)\nsys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def finish(process):
    process.stdin.close()
    process.stdout.close()
    process.wait()


def test_the_state_directory_is_private_and_complete(root, place):
    assert root == place / "state"
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert {"boxes", "layers", "snapshots", "trash"} <= set(names(root))
    assert state.state_dir() == root


def test_without_a_name_the_directory_belongs_to_this_user(monkeypatch):
    monkeypatch.delenv("FORKGYM_STATE", raising=False)
    path = state.state_dir()
    assert path.stat().st_uid == os.geteuid()
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert state._file_system(path) not in ("overlay", "nfs")


@pytest.mark.parametrize("kind", ["file", "link", "open to all", "relative", "below a file"])
def test_an_unfit_directory_is_refused_with_what_to_do(kind, tmp_path, monkeypatch):
    path = tmp_path / "there"
    if kind == "file":
        path.write_text("")
    elif kind == "link":
        (tmp_path / "real").mkdir()
        path.symlink_to(tmp_path / "real")
    elif kind == "open to all":
        path.mkdir()
        path.chmod(0o777)
    elif kind == "relative":
        path = Path("some/where")
    else:
        path.write_text("")
        path = path / "deeper"
    monkeypatch.setenv("FORKGYM_STATE", str(path))
    with pytest.raises(SandboxUnavailableError, match="Set FORKGYM_STATE to a directory of yours on a local disk"):
        state.state_dir()


def test_a_lease_says_who_owns_the_box(root):
    lease = Lease.take(root / "boxes", "b1", layers=["l1"])
    record = json.loads((lease.path / "lease.json").read_text())
    fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
    assert record["pid"] == os.getpid()
    assert record["start"] == int(fields[19])  # field 22, counted from 1, of which two lie before the ")"
    assert record["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    name, _, identity = record["host"].rpartition("/")  # hosts of one name may share a docker daemon
    assert name == os.uname().nodename
    assert bool(identity) == Path("/etc/machine-id").exists()
    assert record["layers"] == ["l1"]
    assert state.owner_alive(lease.path)
    lease.release()
    lease.release()
    assert names(root / "boxes") == names(root / "trash") == []


def test_a_box_cannot_be_taken_twice(root):
    Lease.take(root / "boxes", "b1")
    with pytest.raises(FileExistsError):
        Lease.take(root / "boxes", "b1")


FULL = """
import errno, os, resource, signal, sys
from pathlib import Path
from forkgym.sandboxes import state
root = Path(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))  # a write fails half-way, as on a full disk
boxes, record = root / "boxes", root / "s.json"
for action in (lambda: state.Lease.take(boxes, "b"), lambda: state.write_json(record, {"layers": []})):
    try:
        action()
    except OSError as error:
        print(errno.errorcode[error.errno])
print(os.listdir(root / "boxes"), [name for name in os.listdir(root) if "json" in name])
"""


def test_what_cannot_be_written_leaves_nothing(root):
    done = subprocess.run([sys.executable, "-c", FULL, str(root)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("EFBIG\nEFBIG\n[] []\n", "")


def test_an_owner_is_told_from_a_later_process_with_its_id():
    me = Owner.current()
    assert me.alive()
    assert not replace(me, start=me.start - 1).alive()
    assert not replace(me, boot="another boot of this host").alive()
    assert replace(me, boot="another", host="another machine").alive()
    assert replace(me, pid=1 << 22, pid_namespace=1).alive()  # cannot be judged from here, so it is left alone
    assert Owner.from_tag(me.tag()) == me
    assert Owner.from_tag("box-1") is None


def test_a_zombie_owns_nothing():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = state._owner(process.pid)
    assert owner.alive()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not owner.alive()
    process.communicate()
    assert not owner.alive()


def test_reap_removes_what_a_killed_process_left_and_nothing_else(root):
    make = (
        "for n in ('u', 'w/work'): "
        "(state.Lease.take(root / 'boxes', 'x' + n[0], ['lx']).path / 'g0' / n).mkdir(parents=True)"
    )
    dead = in_another_process(make, root)
    live = in_another_process(make.replace("'x'", "'y'").replace("'lx'", "'ly'"), root)
    Lease.take(root / "boxes", "mine", ["lm"])
    for layer in ("lx", "ly", "lm", "ls", "l0"):
        (root / "layers" / layer / "u").mkdir(parents=True)
    state.write_json(root / "snapshots" / "s1.json", {"layers": ["ls"]})
    os.chmod(root / "boxes" / "xw" / "g0" / "w" / "work", 0)
    assert state.reap(root) == {"boxes": 0, "layers": 1, "trash": 0}
    assert names(root / "layers") == ["lm", "ls", "lx", "ly"]
    dead.kill()
    finish(dead)
    assert state.reap(root) == {"boxes": 2, "layers": 1, "trash": 0}
    assert names(root / "boxes") == ["mine", "yu", "yw"]
    assert names(root / "layers") == ["lm", "ls", "ly"]
    assert names(root / "trash") == []
    finish(live)


def test_a_box_without_a_readable_lease_is_garbage(root):
    (root / "boxes" / "empty").mkdir()
    (root / "boxes" / "torn").mkdir()
    (root / "boxes" / "torn" / "lease.json").write_text('{"pid": 1')
    (root / "boxes" / "old").mkdir()
    (root / "boxes" / "old" / "lease.json").write_text('{"pid": 1}')
    assert state.reap(root)["boxes"] == 3


def test_a_box_that_its_owner_gives_up_meanwhile_does_not_stop_the_sweep(root):
    (root / "boxes" / "here").mkdir()
    gone, here = root / "boxes" / "gone", root / "boxes" / "here"
    assert [path.parent.name for path in state._all_to_trash(root, [gone, here])] == ["trash"]
    assert names(root / "boxes") == []


def test_trash_is_removed_only_once_its_owner_is_gone(root):
    (root / "layers" / "a").mkdir()
    with_trash = in_another_process("state._to_trash(root, root / 'layers' / 'a')", root)
    assert state.reap(root)["trash"] == 0
    assert len(names(root / "trash")) == 1
    with_trash.kill()
    finish(with_trash)
    assert state.reap(root)["trash"] == 1
    assert names(root / "trash") == []


def test_layers_live_until_their_last_user_is_gone(root):
    for layer in ("a", "b"):
        (root / "layers" / layer).mkdir()
    parent = Lease.take(root / "boxes", "parent", ["a"])
    child = Lease.take(root / "boxes", "child", ["a"])
    parent.update(["a", "b"])
    assert state.drop_layers(root, ["a", "b", "never there"]) == 0
    parent.release()
    assert state.drop_layers(root, ["a", "b"]) == 1
    assert names(root / "layers") == ["a"]
    state.write_json(root / "snapshots" / "s.json", {"layers": ["a"]})
    child.release()
    assert state.drop_layers(root, ["a"]) == 0
    (root / "snapshots" / "s.json").unlink()
    assert state.drop_layers(root, ["a"]) == 1
    assert names(root / "layers") == []


def test_nothing_is_removed_while_a_reference_is_being_added(root):
    (root / "layers" / "a").mkdir()
    code = "import sys; from pathlib import Path; from forkgym.sandboxes import state\nprint('go', flush=True)\n"
    code += "print(state.reap(Path(sys.argv[1]))['layers'])"
    with state.locked(root):
        reaper = subprocess.Popen([sys.executable, "-c", code, str(root)], stdout=subprocess.PIPE, text=True)
        assert reaper.stdout is not None
        assert reaper.stdout.readline() == "go\n"
        state.write_json(root / "snapshots" / "s.json", {"layers": ["a"]})
    assert reaper.communicate()[0] == "0\n"
    assert names(root / "layers") == ["a"]


def test_a_child_forked_meanwhile_does_not_keep_the_lock(root):
    with state.locked(root, exclusive=True):
        child = os.fork()  # inherits the open file, as a child of another thread does
        if child == 0:
            time.sleep(600)
            os._exit(0)
    try:
        with state.locked(root, exclusive=True, patience=5.0):
            assert os.waitpid(child, os.WNOHANG) == (0, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_waiting_for_the_lock_has_an_end_that_names_it(root):
    holder = in_another_process("held = state.locked(root); held.__enter__()", root)
    with state.locked(root, patience=0.0):  # shared with the other one
        pass
    with pytest.raises(SandboxTimeoutError) as told, state.locked(root, exclusive=True, patience=0.05):
        pass
    assert f"{root / 'lock'} was held by process {holder.pid} for" in str(told.value)
    assert "set FORKGYM_STATE to another directory" in str(told.value)
    finish(holder)
    with state.locked(root, exclusive=True, patience=5.0):
        pass


def test_time_in_which_the_waiting_process_stood_still_does_not_count(root):
    program = "import sys\nfrom pathlib import Path\nfrom forkgym.sandboxes import state\nprint('waits', flush=True)\n"
    program += f"with state.locked(Path({str(root)!r}), patience=2.0): print('held')"
    with state.locked(root, exclusive=True):
        waiting = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "waits\n"
        waiting.send_signal(signal.SIGSTOP)
        time.sleep(2.5)
        waiting.send_signal(signal.SIGCONT)
        time.sleep(0.1)
    assert waiting.communicate(timeout=30)[0] == "held\n"


AWKWARD_TREE = r"""
import os, sys
from pathlib import Path
from forkgym.sandboxes import state
here = Path(sys.argv[1])
outside, top = here / "outside", here / "top"
outside.mkdir()
(outside / "kept").write_text("kept")
top.mkdir()
(top / "link").symlink_to(outside)
os.mkfifo(top / "fifo")
(top / "line\nbreak").write_text("")
(top / "-rf").mkdir()
os.mkdir(os.fsencode(top) + b"/\xff\xfe")
deep = os.open(top, os.O_RDONLY)
for _ in range(1500):  # beyond PATH_MAX and the recursion limit
    os.mkdir("d" * 20, dir_fd=deep)
    below = os.open("d" * 20, os.O_RDONLY, dir_fd=deep)
    os.close(deep)
    deep = below
os.mkdir("shut", dir_fd=deep)
os.chmod("shut", 0, dir_fd=deep)
(top / "locked" / "in").mkdir(parents=True)
(top / "locked" / "in" / "file").write_text("")
(top / "locked" / "in").chmod(0o500)
(top / "locked").chmod(0)
top.chmod(0o100)
state.remove_tree(top)
state.remove_tree(top)
print(sorted(os.listdir(here)), os.listdir(outside))
"""


def test_remove_tree_takes_any_depth_and_any_mode_and_follows_no_link(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", AWKWARD_TREE, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("['outside'] ['kept']\n", "")


def test_an_ordinary_user_can_remove_all_that_too(ordinary_user):
    place = ordinary_user.home / "work"
    place.mkdir()
    place.chmod(0o777)
    done = ordinary_user.run(AWKWARD_TREE, place)
    assert (done.stdout, done.stderr) == ("['outside'] ['kept']\n", "")

"""Attacks by files: links that lead out, odd names and trees, and files that change while they are read."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path

from forkgym.sandboxes.base import Backend, Sandbox, SandboxSpec
from forkgym.sandboxes.conformance.expect import case, raises
from forkgym.sandboxes.conformance.torture.attack import attack, equal, output, python, true, usable
from forkgym.sandboxes.errors import SandboxError, SandboxFileError


@case
def links_to_the_host(backend: Backend) -> None:
    """Reading, listing and downloading through links never shows a byte of the host."""
    token = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as folder, backend.create(SandboxSpec()) as box:
        Path(folder, "secret").write_text(token)
        output(box, f"mkdir t; ln -s {folder} t/dir; ln -s {folder}/secret t/file; ln -s /proc/1/root{folder} t/proc")
        for path in ("t/dir/secret", "t/file", "t/proc/secret", "t/dir/../../../../../../" + folder + "/secret"):
            raises(f"reading {path}", SandboxFileError, lambda path=path: box.read_file(path))
        for path in ("t/dir", "t/proc"):
            raises(f"listing {path}", SandboxFileError, lambda path=path: box.list_dir(path))
        with tempfile.TemporaryDirectory() as target:
            box.download("t", target)
            found = [path for path in Path(target).rglob("*") if path.is_file() and token in path.read_text()]
            equal("downloaded", found, [])
        usable(box)


@case
def writes_through_links(backend: Backend) -> None:
    """Writing and uploading through links never touches the host."""
    with tempfile.TemporaryDirectory() as folder, backend.create(SandboxSpec()) as box:
        victim, source = Path(folder, "victim"), Path(folder, "source")
        victim.write_text("as before")
        source.mkdir()
        (source / "made").write_text("attack")
        output(box, f"ln -s {victim} file; ln -s {folder} dir; ln -s /proc/self/root{folder} proc")
        for path in ("file", "dir/victim", "dir/made", "proc/victim", "../" * 12 + f"{folder}/victim"):
            try:
                box.write_file(path, b"attack")
            except SandboxFileError:
                continue
        for path in ("dir", "dir/new", "proc"):
            try:
                box.upload(source, path)
            except SandboxError:
                continue
        equal("the victim", victim.read_text(), "as before")
        equal("on the host", sorted(path.name for path in Path(folder).iterdir()), ["source", "victim"])
        usable(box)


@attack()
def racing_links(box: Sandbox) -> None:
    """A file that turns into a link and back all the time shows only what is inside."""
    race = "while :; do echo inside >r; ln -sfn /etc/shadow r; ln -sfn /proc/1/environ r; rm -f r; done"
    box.exec(f"({race}) >/dev/null 2>&1 &")
    for _ in range(200):
        try:
            seen = box.read_file("r", max_bytes=1000)
        except SandboxFileError:
            continue
        true(f"{seen!r} is not from inside", seen in (b"", b"inside\n"))
    box.exec("kill -9 -1", timeout=20)


@attack()
def racing_directories(box: Sandbox) -> None:
    """A directory that turns into a link while a tree is downloaded leads nowhere."""
    output(box, "mkdir -p tree/{a,b,c,d}; for d in tree/*; do for i in {1..50}; do echo x >$d/$i; done; done")
    box.exec("(while :; do mv tree/a tree/z; ln -s /etc tree/a; rm tree/a; mv tree/z tree/a; done) >/dev/null 2>&1 &")
    for _ in range(5):
        with tempfile.TemporaryDirectory() as target:
            try:
                box.download("tree", target)
            except SandboxFileError:
                continue
            names = {path.name for path in Path(target).rglob("*")}
            true("/etc was downloaded", "passwd" not in names)
    box.exec("kill -9 -1", timeout=20)


@attack()
def special_files(box: Sandbox) -> None:
    """Pipes, sockets, devices and directories in the way of a file are errors, and no wait."""
    output(box, "mkfifo fifo; mkdir dir; exec 3<>fifo; ln -s /dev/zero zero; ln -s loop loop")
    python(box, "import socket; socket.socket(socket.AF_UNIX).bind('socket')")
    for path in ("fifo", "dir", "zero", "loop", "socket", "/dev/tty", "/dev/ptmx", "/dev/full"):
        raises(f"reading {path}", SandboxFileError, lambda path=path: box.read_file(path))
    for path in ("fifo", "dir", "zero", "loop", "socket", "/dev/ptmx"):
        raises(f"writing {path}", SandboxFileError, lambda path=path: box.write_file(path, b"x"))


@attack()
def files_of_proc(box: Sandbox) -> None:
    """Nothing of the first process can be read or written through its entries of /proc."""
    for name in ("mem", "environ", "maps", "fd/0", "cwd/etc/shadow", "root/etc/shadow", "task/1/mem", "auxv", "stack"):
        for first in ("/proc/1", "/proc/self", "/proc/thread-self"):
            raises(f"{first}/{name}", SandboxFileError, lambda path=f"{first}/{name}": box.read_file(path))


@attack()
def deep_tree(box: Sandbox) -> None:
    """A tree deeper than a path can be long is forked and removed."""
    python(box, "import os\nfor _ in range(200):\n os.mkdir('d' * 50)\n os.chdir('d' * 50)\nopen('end', 'w').close()")
    walk = "import os\nfor _ in range(200): os.chdir('d' * 50)\nprint(os.listdir('.'))"
    with box.fork()[0] as child:
        equal("the end of it in the fork", python(child, walk), b"['end']\n")


@attack()
def deep_tree_beside_a_process(box: Sandbox) -> None:
    """The same while a process runs, when the state must be copied: a fork, or an error that says so."""
    python(box, "import os\nfor _ in range(120):\n os.mkdir('d' * 50)\n os.chdir('d' * 50)\nopen('end', 'w').close()")
    output(box, "sleep 600 >/dev/null 2>&1 &")
    try:
        child = box.fork()[0]
    except SandboxError as error:
        true(f"the error does not say what is wrong: {error}", "copied" in str(error) or "depth" in str(error))
        return
    with child:
        walk = "import os\nfor _ in range(120): os.chdir('d' * 50)\nprint(os.listdir('.'))"
        equal("the end of it in the fork", python(child, walk), b"['end']\n")


@attack()
def odd_names(box: Sandbox) -> None:
    """Names of any bytes are made, listed, read, forked and kept in a snapshot."""
    names = ["-rf", " ", "new\nline", "\t", "*", "$(id)", "`id`", "'\"", "\udcff\udcfe", "x" * 255, "é", ".hidden"]
    for name in names:
        box.write_file(f"odd/{name}", b"1")
    with box.fork()[0] as child:
        equal("in the fork", [entry.name for entry in child.list_dir("odd")], sorted(names))
        equal("content", {child.read_file(f"odd/{name}") for name in names}, {b"1"})


@attack()
def closed_directories(box: Sandbox) -> None:
    """Directories and files without permissions do not stop a fork, nor the end of a sandbox."""
    output(box, "mkdir -p a/b/c; touch a/b/c/f; chmod 0 a/b/c/f a/b/c a/b a")
    with box.fork()[0] as child:
        equal("modes", output(child, "chmod 700 a a/b; stat -c %a a/b/c"), b"0\n")


@attack()
def hard_links(box: Sandbox) -> None:
    """Hard links survive a fork until one of the names is written; then a backend may part them, but lose nothing."""
    output(box, "echo one >f; for i in {1..200}; do ln f l$i; done")
    with box.fork()[0] as child:
        equal("links", output(child, "stat -c %h f; [ f -ef l200 ] && echo same"), b"201\nsame\n")
        seen = output(child, "echo two >f; cat f l200").split()
        true(f"after writing: {seen}", seen in ([b"two", b"two"], [b"two", b"one"]))
    equal("the parent", output(box, "cat l1"), b"one\n")


@attack()
def working_directory_removed(box: Sandbox) -> None:
    """Removing or replacing the working directory of the shell and of the sandbox is survived."""
    shell = box.shell()
    shell.run("mkdir -p /tmp/gone/deep; cd /tmp/gone/deep; rm -rf /tmp/gone")
    true("the shell hung", not shell.run("pwd; ls", timeout=20).timed_out)
    with box.fork()[0] as child:
        true("the fork's shell hung", not child.shell().run("cd /; pwd", timeout=20).timed_out)
    shell.run("cd /")


@attack()
def frozen_while_written(box: Sandbox) -> None:
    """A fork taken while a process writes holds one moment, and does not change afterwards."""
    output(box, "(while :; do date +%N >>log; done) >/dev/null 2>&1 & sleep 0.3")
    with box.fork()[0] as child:
        first = child.read_file("log")
        equal("a moment later", child.read_file("log"), first)
        true("the parent stands still", box.read_file("log") != first)
    box.exec("kill -9 -1", timeout=20)


@case
def frozen_layers(backend: Backend) -> None:
    """What parent and child do to their common past is seen by neither, root or not."""
    with backend.create(SandboxSpec()) as box:
        output(box, "mkdir d; echo one >d/f; echo one >g; ln g h; head -c 300000 /dev/zero >big")
        state = "cat d/f g h; sha256sum big; stat -c '%a %U' d d/f; ls"
        before = output(box, state)
        with box.fork()[0] as first, box.fork()[0] as second:
            first.exec(
                'chmod 777 d d/f; echo x >>d/f; rm g; truncate -s 0 big; touch new; python3 -c "import mmap\n'
                "f = open('h', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[:3] = b'two'; m.flush()\""
            )
            box.exec("rm -r d big; echo parent >g")
            equal("the other child", output(second, state), before)


CASES = (
    links_to_the_host,
    writes_through_links,
    racing_links,
    racing_directories,
    special_files,
    files_of_proc,
    deep_tree,
    deep_tree_beside_a_process,
    odd_names,
    closed_directories,
    hard_links,
    working_directory_removed,
    frozen_while_written,
    frozen_layers,
)

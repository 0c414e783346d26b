"""Cases of forks and snapshots: equal at the start, apart from then on, kept as long as somebody needs them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager

from forkgym.sandboxes.base import Backend, Background, Sandbox, SandboxSpec
from forkgym.sandboxes.conformance.expect import case, equal, output, raises, running, true
from forkgym.sandboxes.errors import ForkBusyError, SnapshotError


@contextmanager
def _forked(box: Sandbox, n: int, background: Background = "copy") -> Generator[list[Sandbox]]:
    with ExitStack() as stack:
        yield [stack.enter_context(child) for child in box.fork(n, background=background)]


@case
def fork_sees_latest_bytes(backend: Backend) -> None:
    """A child has every byte, mode, link and deletion of its parent up to the call."""
    write = """head -c 5000000 /dev/urandom >big && sha256sum big >sum && mkdir -p bin old/deep && echo x >old/deep/f
        printf '#!/bin/sh\\necho ok\\n' >bin/tool && chmod 751 bin/tool && ln -s /work/big link && mkfifo fifo
        mkdir .wh.sub sub && touch .wh.keep keep gone $'new\\nline' && ln keep twin && rm gone && mv old new"""
    verify = (
        "sha256sum -c sum >/dev/null && bin/tool && stat -c %a bin/tool && readlink link && ls -A && cat new/deep/f"
    )
    listing = b".wh.keep\n.wh.sub\nbig\nbin\nfifo\nkeep\nlink\nnew\nnew\nline\nsub\nsum\ntwin\n"
    with backend.create(SandboxSpec()) as box:
        output(box, write)
        with _forked(box, 2) as children:
            for child in children:
                equal("a child", output(child, verify, timeout=30), b"ok\n751\n/work/big\n" + listing + b"x\n")
            equal("the parent", output(box, verify), b"ok\n751\n/work/big\n" + listing + b"x\n")


@case
def fork_isolated_siblings(backend: Backend) -> None:
    """After a fork nobody sees what another one writes, deletes, replaces or renames."""
    change = "echo {0} >file; rm gone; mkdir gone; echo {0} >gone/in; mv dir dir{0}; echo {0} >>log"
    look = "cat file gone/in log; ls -d dir*; cat dir*/f"
    with backend.create(SandboxSpec()) as box:
        output(box, "echo old >file; echo old >gone; mkdir dir; echo f >dir/f; echo start >log")
        with _forked(box, 4) as children:
            family = [*children, box]
            for number, one in enumerate(family):
                output(one, change.format(number))
            for number, one in enumerate(family):
                due = f"{number}\n{number}\nstart\n{number}\ndir{number}\nf\n".encode()
                equal(f"member {number}", output(one, look), due)
            equal("ids", len({one.id for one in family}), 5)


@case
def fork_shell_state(backend: Backend) -> None:
    """A child's shell starts where its parent's stood, with its exports and functions; then they part."""
    with backend.create(SandboxSpec()) as box:
        shell = box.shell()
        shell.run("mkdir -p deep/er; cd deep/er; export A='x y'; f() { echo fn $1; }")
        box.shell("second").run("cd /tmp; export A=2")
        with _forked(box, 2) as (one, two):
            one.shell().run("cd /; export A=one")
            for name, found in (("sibling", two.shell()), ("parent", shell)):
                equal(name, found.run('pwd; echo "$A"; f 1').stdout, b"/work/deep/er\nx y\nfn 1\n")
            equal("second shell", two.shell("second").run("pwd; echo $A").stdout, b"/tmp\n2\n")
            shell.run("echo here >relative")
            equal("a relative path after the fork", output(box, "cat deep/er/relative"), b"here\n")
            equal("not in the child", two.shell().run("ls").stdout, b"")
            equal("restarts", shell.restarts, 0)


@case
def fork_of_fork(backend: Backend) -> None:
    """Forks can be forked; the lineage names all ancestors, oldest first, and processes are not copied."""
    with backend.create(SandboxSpec()) as box, ExitStack() as stack:
        equal("lineage of the first", box.lineage, ())
        output(box, "echo 0 >log; (setsid sleep 7008 >/dev/null 2>&1 &)")
        line = [box]
        for number in range(1, 6):
            child = stack.enter_context(line[-1].fork()[0])
            output(child, f"echo {number} >>log; echo {number} >own{number}")
            line.append(child)
        equal("lineage of the last", line[-1].lineage, tuple(one.id for one in line[:-1]))
        for number, one in enumerate(line):
            due = "".join(f"{step}\n" for step in range(number + 1)).encode()
            equal(f"log of generation {number}", output(one, "cat log"), due)
        equal("processes", (running(box, "sleep 7008"), running(line[1], "sleep 7008")), (1, 0))
        equal("spec and backend", (line[-1].spec, line[-1].backend), (box.spec, box.backend))


@case
def children_outlive_parent(backend: Backend) -> None:
    """A family may be closed in any order; files stay as long as somebody stands on them."""
    with ExitStack() as stack:
        box = stack.enter_context(backend.create(SandboxSpec()))
        output(box, "echo parent >file")
        one, two = (stack.enter_context(child) for child in box.fork(2))
        box.close()
        output(one, "echo one >>file")
        grandchild = stack.enter_context(one.fork()[0])
        one.close()
        equal("grandchild", output(grandchild, "cat file"), b"parent\none\n")
        equal("other child", output(two, "cat file"), b"parent\n")
        equal("alive", (box.alive, one.alive, two.alive, grandchild.alive), (False, False, True, True))


@case
def fork_while_writing(backend: Backend) -> None:
    """With a writer in the background a fork fails, copies or kills, as asked; the writer goes on unless killed."""
    writer = "exec 9>log; while :; do echo line >&9; sleep 0.02; done # 7009"
    with backend.create(SandboxSpec()) as box:
        output(box, f"(setsid bash -c '{writer}' >/dev/null 2>&1 &)")
        output(box, "until [ -s log ]; do sleep 0.02; done", timeout=20)
        raises("fail", ForkBusyError, lambda: box.fork(background="fail"))
        equal("the writer after a refusal", running(box, "7009"), 1)
        with _forked(box, 1) as (child,):
            lines = output(child, "cat log")
            true("a copy lacks what was written", lines.startswith(b"line\n"))
            equal("a writer in the child", running(child, "7009"), 0)
            output(box, f"until [ $(stat -c %s log) -gt {len(lines)} ]; do sleep 0.02; done", timeout=20)
            equal("the copy grew", output(child, "cat log"), lines)
        with _forked(box, 1, "kill") as (child,):
            equal("writers after a kill", (running(box, "7009"), running(child, "7009")), (0, 0))
            equal("the same log", output(child, "cat log"), output(box, "cat log"))


@case
def snapshot_immutable_and_restorable(backend: Backend) -> None:
    """A snapshot keeps its moment: restored any number of times, also without its maker, until it is deleted."""
    with ExitStack() as stack:
        box = stack.enter_context(backend.create(SandboxSpec()))
        box.shell().run("mkdir at; cd at; export A=kept; echo before >/work/file")
        snapshot = box.snapshot("a label")
        stack.callback(lambda: snapshot in backend.snapshots() and backend.delete_snapshot(snapshot.id))
        equal("what it says", (snapshot.label, snapshot.backend), ("a label", box.backend))
        output(box, "echo after >file; mkdir later")
        box.close()
        for turn in (1, 2):
            with backend.create(SandboxSpec(), snapshot=snapshot.id) as copy:
                equal(f"restored, turn {turn}", output(copy, "cat file; ls"), b"before\nat\nfile\n")
                equal("its shell", copy.shell().run("pwd; echo $A").stdout, b"/work/at\nkept\n")
                output(copy, "echo changed >file")
        true("it is not listed", snapshot in backend.snapshots())
        survivor = stack.enter_context(backend.create(SandboxSpec(), snapshot=snapshot.id))
        backend.delete_snapshot(snapshot.id)
        true("it is still listed", snapshot not in backend.snapshots())
        equal("a sandbox that stands on it", output(survivor, "cat file"), b"before\n")
        raises("restoring it", SnapshotError, lambda: backend.create(SandboxSpec(), snapshot=snapshot.id))
        raises("deleting it again", SnapshotError, lambda: backend.delete_snapshot(snapshot.id))
        raises("a path as an id", SnapshotError, lambda: backend.create(SandboxSpec(), snapshot="../boxes"))


CASES = (
    fork_sees_latest_bytes,
    fork_isolated_siblings,
    fork_shell_state,
    fork_of_fork,
    children_outlive_parent,
    fork_while_writing,
    snapshot_immutable_and_restorable,
)

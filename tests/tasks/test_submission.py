"""Capture and apply: every byte, executable bit, link, deletion and odd name survives the way to a clean sandbox."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forkgym.sandboxes.base import Sandbox
from forkgym.tasks import tree
from forkgym.tasks.base import FileChange, Submission, Task
from forkgym.tasks.grading import grade
from forkgym.tasks.submission import apply, capture, compare, from_json, to_json
from forkgym.tasks.tree import HostileTreeError, Node, Tree
from forkgym.tasks.workspace import Bases

Make = Callable[..., Task]
FILES = {
    "text.txt": b"a\nb\nc\n",
    "crlf.txt": b"a\r\nb\r\n",
    "pkg/mod.py": b"x = 1\n",
    "pkg/old.py": b"y = 1\n",
    "run.sh": b"#!/bin/sh\n",
}


def changed(bases: Bases, task: Task, script: str) -> Submission:
    """What ``script`` changes, captured on a fork."""
    with bases.box(task) as box:
        result = box.exec(["/bin/bash", "-c", script])
        assert result.ok, result
        with box.fork(1)[0] as quiet:
            return capture(quiet, task, bases.tree(task))


def listing(box: Sandbox) -> dict[str, tuple[str, bytes | str | None, bool]]:
    found = tree.read(box, "/work", 1 << 26)
    return {path: (node.kind, node.data or node.link, node.executable) for path, node in found.nodes.items()}


SCRIPT = r"""
printf 'a\nb\nc' > text.txt
printf 'a\r\nB\r\n' > crlf.txt
printf '\0\xff\r\n\x1a' > bin.dat
rm -r pkg && mkdir -p pkg/sub && ln -s ../../text.txt pkg/sub/link && ln -s /nowhere dangling
chmod +x text.txt && chmod -x run.sh
printf x > 'x b/y.txt' 2>/dev/null || { mkdir 'x b'; printf x > 'x b/y.txt'; }
printf n > 'naïve file.txt'; printf n > $'two\nlines'; printf n > $'raw\xff'; printf n > -rf; printf n > '"quoted"\t'
ln text.txt hard
: > empty
"""


def test_a_round_trip_keeps_every_byte(bases: Bases, make: Make) -> None:
    task = make(files=FILES, setup=("chmod +x run.sh",))
    with bases.box(task) as box:
        assert box.exec(["/bin/bash", "-c", SCRIPT]).ok
        with box.fork(1)[0] as quiet:
            submission = capture(quiet, task, bases.tree(task))
            wanted = listing(quiet)
    carried = from_json(to_json(submission))
    assert carried == submission
    with bases.box(task) as clean:
        apply(clean, carried, task.workdir)
        assert listing(clean) == wanted
    changes = submission.changes
    assert changes["text.txt"] == FileChange(b"a\nb\nc", 0o755)
    assert changes["crlf.txt"] == FileChange(b"a\r\nB\r\n", 0o644)
    assert changes["bin.dat"].data == b"\0\xff\r\n\x1a"
    assert changes["pkg/mod.py"].deleted
    assert changes["pkg/old.py"].deleted
    assert changes["pkg/sub/link"] == FileChange(None, 0o777, "../../text.txt")
    assert changes["dangling"].link == "/nowhere"
    assert changes["hard"].data == b"a\nb\nc"
    assert changes["run.sh"].mode == 0o644
    assert {"x b/y.txt", "naïve file.txt", "two\nlines", "raw\udcff", "-rf", '"quoted"\\t', "empty"} <= set(changes)
    assert submission.left_out == {}


def test_a_file_becomes_a_directory_and_back(bases: Bases, make: Make) -> None:
    task = make(files=FILES)
    script = "rm text.txt; mkdir text.txt; echo 1 > text.txt/in; rm -r pkg; echo 2 > pkg; rm run.sh; ln -s pkg run.sh"
    submission = changed(bases, task, script)
    assert set(submission.changes) == {"text.txt", "text.txt/in", "pkg", "pkg/mod.py", "pkg/old.py", "run.sh"}
    with bases.box(task) as clean:
        apply(clean, submission, task.workdir)
        assert clean.read_file("/work/text.txt/in") == b"1\n"
        assert clean.read_file("/work/pkg") == b"2\n"
        assert clean.exec(["/bin/readlink", "run.sh"]).stdout == b"pkg\n"


@pytest.mark.parametrize(
    "script", ["true", "touch text.txt", "cp text.txt t && mv t text.txt", "chmod 600 text.txt", "mkdir new"]
)
def test_nothing_that_counts_is_an_empty_submission(bases: Bases, make: Make, script: str) -> None:
    assert changed(bases, make(files=FILES), script).empty


def test_what_is_no_work_is_left_out_with_its_reason(bases: Bases, make: Make) -> None:
    script = (
        "echo 2 > text.txt; mkdir -p __pycache__ .git node_modules/x; echo 1 > __pycache__/m.pyc; echo 1 > .git/HEAD;"
        "echo 1 > node_modules/x/i.js; cp /bin/true prog; echo 1 > m.o; echo 1 > m.pyc; mkfifo pipe"
    )
    submission = changed(bases, make(files=FILES), script)
    assert set(submission.changes) == {"text.txt"}
    assert submission.left_out == {
        "node_modules/x/i.js": "inside node_modules",
        "prog": "a build product",
        "m.o": "a build product",
        "m.pyc": "a build product",
        "pipe": "neither a file nor a link",
    }


@pytest.mark.parametrize(
    "script", ["rm text.txt; mkfifo text.txt", "mkdir d; mkfifo d/text.txt; mv d/text.txt text.txt"]
)
def test_a_pipe_in_place_of_a_file_neither_blocks_nor_counts(bases: Bases, make: Make, script: str) -> None:
    submission = changed(bases, make(files=FILES), script)
    assert submission.changes == {}
    assert submission.left_out == {"text.txt": "neither a file nor a link"}


def test_a_program_of_the_task_itself_may_be_changed(bases: Bases, make: Make) -> None:
    task = make(files={**FILES, "tool.so": b"\x7fELF old"})
    assert changed(bases, task, "printf '\\x7fELF new' > tool.so").changes["tool.so"].data == b"\x7fELF new"


@pytest.mark.parametrize(
    "script",
    [
        "chmod 000 ~/place",
        "chmod 000 ~",
        "rm -r ~/place; touch ~/place",
        "rm -r ~/place; ln -s place ~/place",
    ],
)
def test_a_working_directory_that_nobody_can_enter_is_malformed_and_no_failure(
    bases: Bases, make: Make, script: str
) -> None:
    task = make(workdir="/home/agent/place")
    submission = changed(bases, task, script)
    assert submission.malformed.startswith("cannot read /home/agent/place: ")
    assert grade(task, submission, bases.box).score == 0.0


@pytest.mark.parametrize("script", ["truncate -s 1000M big", "truncate -s 65M big"])
def test_more_than_the_ceiling_is_malformed(bases: Bases, make: Make, script: str) -> None:
    submission = changed(bases, make(files=FILES), script)
    assert not submission.empty
    assert "/work holds more than" in submission.malformed


def test_much_that_fits_the_stream_is_still_too_much() -> None:
    node = Node("file", 0o644, b"x" * (31 << 20), sha256=b"1")
    submission = compare(Tree({}, 0), Tree({"a": node, "b": node}, 62 << 20))
    assert submission.malformed == (
        "2 changed files with 65011712 bytes; at most 5000 files and 62914560 bytes are graded"
    )


def test_a_file_that_nobody_may_read_is_gone(bases: Bases, make: Make) -> None:
    assert changed(bases, make(files=FILES), "chmod 000 text.txt").changes["text.txt"].deleted


def test_names_in_the_shell_of_the_agent_mean_nothing(bases: Bases, make: Make) -> None:
    """Functions, aliases, exported options and programs named tar in the working directory are not used."""
    task = make(files=FILES)
    with bases.box(task) as box:
        box.shell().run("export TAR_OPTIONS=--exclude=text.txt PATH=/work; tar() { :; }; export -f tar")
        script = "printf '#!/bin/sh\\nexit 0\\n' | tee tar head sh > /dev/null; chmod +x tar head sh; echo 2 > text.txt"
        assert box.exec(["/bin/bash", "-c", script]).ok
        with box.fork(1)[0] as quiet:
            assert capture(quiet, task, bases.tree(task)).changes["text.txt"].data == b"2\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "TypeError"),
        ('{"schema": 1, "changes": {"../up": null}, "left_out": {}, "malformed": ""}', "leaves the working directory"),
        ('{"schema": 1, "changes": {"/etc/x": null}, "left_out": {}, "malformed": ""}', "leaves the working directory"),
        ('{"schema": 1, "changes": {"a": {"mode": 420, "base64": "!"}}, "left_out": {}, "malformed": ""}', "Error"),
    ],
)
def test_text_that_is_no_submission_is_malformed(text: str, says: str) -> None:
    submission = from_json(text)
    assert says in submission.malformed
    assert not submission.empty


def test_a_stream_with_a_path_that_leaves_is_refused() -> None:
    stream = tree.pack({"../up": FileChange(b"x")})
    with pytest.raises(HostileTreeError, match="leaves the directory"):
        list(tree._nodes(stream))
    with pytest.raises(HostileTreeError, match="not a tar stream"):
        list(tree._nodes(b"x" * 1024))

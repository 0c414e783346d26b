from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forkgym.agents.loops.edits import changes, sed_command, view_command, write_commands
from forkgym.tasks import load
from forkgym.tasks.base import Grading, Task

CLAMP = b"def clamp(x, lo, hi):\n    if x < lo:\n        return lo\n    return min(x, hi)\n"


def task(files: dict[str, bytes], oracle: dict[str, bytes | None]) -> Task:
    return Task("t/x", "swe", "Fix it.", "train", files, {}, oracle, Grading("pytest", ("t",)))


def run(files: dict[str, bytes], commands: list[str]) -> dict[str, bytes]:
    """The files after real bash ran the commands."""
    with tempfile.TemporaryDirectory() as folder:
        for path, data in files.items():
            (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / path).write_bytes(data)
        for command in commands:
            subprocess.run(["bash", "-c", command], cwd=folder, check=True, capture_output=True)
        found = (p for p in Path(folder).rglob("*") if p.is_file())
        return {str(p.relative_to(folder)): p.read_bytes() for p in found}


@pytest.mark.parametrize(
    ("old", "new", "command"),
    [
        (b"a\nb = 1\n", b"a\nb = 2\n", r"sed -i '2c\b = 2' f"),
        (b"    return lo\n", b"    return hi\n", r"sed -i '1c\    return hi' f"),
        (b"a = b\n", b"a = b & c / d * e\n", r"sed -i '1c\a = b & c / d * e' f"),
        (b"x = 'a'\n", b"x = 'b'\n", r"sed -i '1c\x = '\''b'\''' f"),
        (b"x\n", b"\\n\\\n", r"sed -i '1c\\\n\\' f"),
    ],
)
def test_one_changed_line_is_replaced_by_its_number(old: bytes, new: bytes, command: str) -> None:
    assert sed_command("f", old, new) == command
    assert run({"f": old}, [command]) == {"f": new}


def test_what_one_line_cannot_do_is_rewritten() -> None:
    assert sed_command("f", b"x = 1\nx = 1\n", b"x = 2\nx = 2\n") is None
    assert sed_command("f", CLAMP, CLAMP + b"\n") is None
    assert sed_command("f", b"\xff\n", b"\xfe\n") is None
    assert sed_command("f", b"a", b"b") is None
    two = task({"f": b"x = 1\nx = 1\n"}, {"f": b"x = 2\nx = 2\n"})
    assert write_commands(two) == ["cat > f <<'EOF'\nx = 2\nx = 2\nEOF"]


def test_any_solution_is_reproduced_byte_for_byte() -> None:
    files = {
        "clamp.py": CLAMP,
        "d/old.txt": b"gone",
        "bin": b"\x00\xff\r\n",
        "-odd name'.py": b"a\n",
        "crlf.py": b"a\r\nb\r\n",
        "same": b"1",
    }
    oracle: dict[str, bytes | None] = {
        "clamp.py": CLAMP + b"# EOF\nEOF\nEOF_\n",
        "d/old.txt": None,
        "bin": b"\x00\xfe",
        "-odd name'.py": b"b\n",
        "crlf.py": b"a\r\nc\r\n",
        "same": b"1",
        "new dir/deep/n.md": b"```bash\nls\n```\n",
        "no_end": b"a\nb",
        "empty": b"",
    }
    expected = {path: data for path, data in oracle.items() if data is not None}
    solved = task(files, oracle)
    assert "same" not in changes(solved)
    assert run(files, write_commands(solved)) == expected
    odd = "cat -n './-odd name'\"'\"'.py'"
    assert view_command(solved) == [odd, "cat -n bin", "cat -n clamp.py", "cat -n crlf.py", "cat -n d/old.txt"]


def test_every_bundled_task_is_solved_by_its_commands() -> None:
    library = list(load("swe/tiny/*"))
    assert library
    for item in library:
        expected = {**item.files, **{path: data for path, data in item.oracle.items() if data is not None}}
        assert run(dict(item.files), write_commands(item)) == expected, item.id


def test_nothing_to_change() -> None:
    assert write_commands(task({"a": b"1"}, {})) == view_command(task({"a": b"1"}, {})) == []


line = st.text(st.sampled_from("ab01 _.*[]^$\\/&|'\"`(){}+?-\t~é"), max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(line, min_size=1, max_size=4), st.data())
def test_every_sed_does_what_it_says(lines: list[str], data: st.DataObject) -> None:
    i = data.draw(st.integers(0, len(lines) - 1))
    changed = [*lines[:i], data.draw(line), *lines[i + 1 :]]
    before, after = "\n".join(lines).encode() + b"\n", "\n".join(changed).encode() + b"\n"
    command = sed_command("f", before, after)
    if command is not None:
        assert run({"f": before}, [command]) == {"f": after}

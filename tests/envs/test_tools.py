"""The view and edit tools on real files."""

import pytest


@pytest.fixture
def env(make):
    env = make(max_turns=100)
    env.reset(seed=1)
    return env


@pytest.fixture
def edit(env):
    """Write a file, run edit calls on it; gives (the text of the last result, whether it was refused, the bytes)."""

    def run(data, *calls):
        env.box.write_file("/work/f.txt", data)
        results = [env.step({"tool": "edit", "arguments": {"path": "f.txt", **call}}) for call in calls]
        observation, *_, info = results[-1]
        return observation["text"], info["tool_error"], env.box.read_file("/work/f.txt")

    return run


def replace(old, new):
    return {"command": "str_replace", "old_str": old, "new_str": new}


def insert(line, new):
    return {"command": "insert", "line": line, "new_str": new}


@pytest.mark.parametrize(
    ("before", "call", "after"),
    [
        (b"a\nb\nc\n", replace("b", "B"), b"a\nB\nc\n"),
        (b"a\nb\nc\n", replace("b\n", ""), b"a\nc\n"),
        (b"a\nb\nc\n", replace("a\nb", "x"), b"x\nc\n"),
        (b"a\nb\nc", replace("c", "C"), b"a\nb\nC"),
        (b"a\r\nb\r\nc\r\n", replace("b", "B"), b"a\r\nB\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", replace("a\nb", "a\nB\nx"), b"a\r\nB\r\nx\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", replace("a\r\nb", "a\r\nB"), b"a\r\nB\r\nc\r\n"),
        (b"a\r\nb\nc\n", replace("b\nc", "b\nx\nc"), b"a\r\nb\nx\nc\n"),
        (b"a\nb\r\nc\r\n", replace("b\nc", "b\nx\nc"), b"a\nb\r\nx\r\nc\r\n"),
        (b"\xff\xfe a\nb\n", replace("b", "B"), b"\xff\xfe a\nB\n"),
        (b"a\rb\n", replace("a\rb", "a"), b"a\n"),
        ("naïve ❌\n".encode(), replace("❌", "✔"), "naïve ✔\n".encode()),
        (b"a\nb\n", insert(0, "x"), b"x\na\nb\n"),
        (b"a\nb\n", insert(1, "x\ny\n"), b"a\nx\ny\nb\n"),
        (b"a\nb\n", insert(2, "x"), b"a\nb\nx\n"),
        (b"a\nb", insert(2, "x"), b"a\nb\nx"),
        (b"a\r\nb\r\n", insert(1, "x\ny"), b"a\r\nx\r\ny\r\nb\r\n"),
        (b"a\r\nb", insert(2, "x"), b"a\r\nb\r\nx"),
        (b"", insert(0, "x"), b"x\n"),
        (b"old", {"command": "create", "file_text": "new\n"}, b"new\n"),
    ],
)
def test_edits_are_byte_exact(edit, before, call, after):
    text, refused, data = edit(before, call)
    assert (refused, data) == (False, after), text


@pytest.mark.parametrize(
    ("before", "call", "words"),
    [
        (b"a\nb\na\n", replace("a", "x"), "occurs 2 times in /work/f.txt, at lines 1, 3"),
        (b"aaa\n", replace("aa", "x"), "occurs 2 times"),
        (b"a\n", replace("", "x"), "old_str is empty"),
        (b"a\n", replace("a", "a"), "are the same"),
        (b"a\n", replace("zzz", "x"), "does not occur in /work/f.txt."),
        (
            b"  one two\n  three\n",
            replace("one two\nthree", "x"),
            "Only white space differs. Nearest lines:\n     1\t  one two",
        ),
        (b"x\nreturn value\ny\n", replace("return valeu", "x"), "Nearest lines:\n     2\treturn value"),
        (b"a\n", insert(2, "x"), "has 1 lines; cannot insert after line 2"),
        (b"a\n", {"command": "insert", "line": 1}, "insert needs new_str"),
        (b"a\n", {"command": "str_replace"}, "needs old_str and new_str"),
        (b"a\n", {"command": "create"}, "create needs file_text"),
        (b"a\n", {"command": "undo"}, "no change of /work/f.txt to undo"),
    ],
)
def test_a_refused_edit_says_why_and_changes_nothing(edit, before, call, words):
    text, refused, data = edit(before, call)
    assert refused
    assert words in text
    assert data == before


def test_an_edit_shows_the_lines_around_it(edit):
    text, _, _ = edit(b"".join(b"line %d\n" % i for i in range(1, 21)), replace("line 10\n", "ten\nand a half\n"))
    assert text.splitlines()[0] == "Edited /work/f.txt:"
    assert text.splitlines()[1].split() == ["7", "line", "7"]
    assert "    10\tten\n    11\tand a half\n    12\tline 11\n" in text


def test_undo_goes_back_step_by_step(edit):
    undo = {"command": "undo"}
    steps = [replace("a", "b"), replace("b", "c")]
    assert edit(b"a\n", *steps, undo)[2] == b"b\n"
    _, refused, data = edit(b"a\n", *steps, undo, undo)
    assert (refused, data) == (False, b"a\n")


def test_undo_refuses_to_lose_somebody_elses_change(edit):
    edit(b"a\n", replace("a", "b"))
    text, refused, data = edit(b"changed by bash\n", {"command": "undo"})
    assert (refused, data) == (True, b"changed by bash\n")
    assert "changed by something else" in text


def test_undo_of_create_removes_the_file(env, calc):
    env.step({"tool": "edit", "arguments": {"command": "create", "path": "deep/new.txt", "file_text": "x"}})
    assert env.box.read_file("/work/deep/new.txt") == b"x"
    env.step({"tool": "edit", "arguments": {"command": "undo", "path": "./deep/../deep/new.txt"}})
    assert env.step(calc.bash("ls deep"))[0]["text"] == "[no output]"


def test_edits_keep_permission_bits_and_links(env, calc):
    env.step(calc.bash("printf 'a\\n' > run.sh; chmod 750 run.sh; ln -s run.sh link.sh"))
    for path in ("run.sh", "link.sh"):
        env.step({"tool": "edit", "arguments": {"path": path, **insert(0, "x")}})
    assert env.step(calc.bash("stat -c %a run.sh; test -L link.sh && cat run.sh"))[0]["text"] == "750\nx\nx\na\n"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("missing.txt", "does not exist"),
        (".", "Cannot edit /work"),
        ("/etc/passwd", "Cannot edit /etc/passwd"),
        ("a\0b", "Cannot edit"),
    ],
)
def test_paths_that_cannot_be_edited(env, path, words):
    observation, *_, info = env.step({"tool": "edit", "arguments": {"path": path, **insert(0, "x")}})
    assert words in observation["text"]
    assert info["tool_error"] is True
    assert env.outcome is None


def test_view_shows_lines_ranges_and_directories(env, calc):
    def view(**arguments):
        observation, *_, info = env.step({"tool": "view", "arguments": arguments})
        return observation["text"], info["tool_error"]

    env.step(calc.bash("mkdir -p d/sub; printf 'a\\r\\nb\\r\\n' > d/crlf; touch d/empty; ln -s crlf d/link"))
    assert view(path="d/crlf") == ("     1\ta\n     2\tb\n[line endings: CRLF]", False)
    assert view(path="/work/calc.py", first=5, last=6) == ("     5\tdef double(a):\n     6\t    return a + 2", False)
    assert view(path="d") == ("crlf\nempty\nlink@\nsub/", False)
    assert view(path="d/empty") == ("/work/d/empty is empty.", False)
    assert view(path="d/sub") == ("/work/d/sub is an empty directory.", False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"path": "nope"}, "Cannot show /work/nope"),
        ({"path": "calc.py", "first": 99}, "has 10 lines; there is no line 99"),
        ({"path": "calc.py", "first": 3, "last": 2}, "is before first"),
        ({"path": "/dev/null"}, "Cannot show /dev/null"),
        ({"path": "/root/x"}, "Cannot show /root/x"),
    ],
)
def test_view_says_what_it_cannot_show(env, arguments, words):
    observation, *_, info = env.step({"tool": "view", "arguments": arguments})
    assert words in observation["text"]
    assert info["tool_error"] is True


def test_bash_takes_any_text_as_a_command(env, calc):
    for command in ("", "\n\n", "echo 'ü ❌'", "cat <<'E'\nx\nE", "a\0b", "if", "# only a comment"):
        env.step(calc.bash(command))
        assert env.outcome is None
    assert env.step(calc.bash("echo still here"))[0]["text"] == "still here\n"


TREE = """
mkdir -p sub .git
printf 'alpha\\nbeta a.b\\n' > one.txt
printf 'ALPHA x\\n' > sub/two.py
echo alpha > .git/x; echo alpha > .hidden; printf 'alpha\\0' > binary; echo '*.txt' > .gitignore
seq -f 'line %g' 150 > many
"""


@pytest.fixture
def search(make):
    """Search a small tree; gives (the lines found, whether it was refused)."""
    env = make(tools=["bash", "search", "submit"], max_turns=100)
    env.reset(seed=1)
    env.box.exec(["sh", "-c", TREE])

    def run(**arguments):
        observation, *_, info = env.step({"tool": "search", "arguments": arguments})
        return observation["text"].split("\n"), info["tool_error"]

    return run


def test_search_shows_path_number_and_line(search):
    assert search(pattern="alpha") == ([".hidden:1:alpha", "one.txt:1:alpha"], False)
    assert search(pattern="alpha", ignore_case=True) == (
        [".hidden:1:alpha", "one.txt:1:alpha", "sub/two.py:1:ALPHA x"],
        False,
    )
    assert search(pattern="a.b|A x$") == (["one.txt:2:beta a.b", "sub/two.py:1:ALPHA x"], False)
    assert search(pattern="a.b|A x$", fixed=True) == (["No line matches."], False)
    assert search(pattern="^ALPHA", path="sub") == (["sub/two.py:1:ALPHA x"], False)
    assert search(pattern="-v", path="/work/one.txt") == (["No line matches."], False)


def test_search_is_bounded_and_says_what_is_wrong(search):
    lines, _ = search(pattern="line", path="many")
    assert lines[0] == "many:1:line 1"
    assert lines[100:] == ["[50 more lines match; narrow the search]"]
    (line, *_), refused = search(pattern="(")
    assert refused
    assert line.startswith("Cannot search /work: ")
    assert search(pattern="x", path="none")[1]

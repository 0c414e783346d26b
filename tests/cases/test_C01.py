"""C01: what bash runs, the shell runs; nothing parses commands before bash does."""

import pytest

from forkgym.sandboxes import create

COMMANDS = [
    ("cat <<'__E__'\n<a b=\"1\"/>\n__E__", b'<a b="1"/>\n'),
    (": <<'EOF'\n$x `v` \"q\"\nEOF\necho after $((1+2))", b"after 3\n"),
    ("case x in x) echo y;; esac", b"y\n"),
]


@pytest.fixture(scope="module")
def box():
    with create() as box:
        yield box


@pytest.mark.parametrize(("command", "output"), COMMANDS)
def test_heredocs_and_compound_commands(box, command, output):
    result = box.shell().run(command, timeout=20)
    assert (result.stdout, result.exit_code) == (output, 0)
    result = box.exec(command, timeout=20)
    assert (result.stdout, result.exit_code) == (output, 0)

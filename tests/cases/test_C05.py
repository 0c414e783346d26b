"""C05: nothing waits for a key: pagers print, editors fail or accept at once."""

import pytest

from forkgym.sandboxes import create

SETUP = """
git init -q repo && cd repo && git config user.name a && git config user.email a@b
for i in $(seq 200); do git commit -q --allow-empty -m "commit $i"; done
"""


@pytest.fixture(scope="module")
def shell():
    with create() as box:
        result = box.shell().run(SETUP, timeout=60)
        assert result.exit_code == 0, result.stdout
        yield box.shell()


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("git log", b"    commit 1"),
        ("git log -p --stat", b"    commit 200"),
        ("git show HEAD", b"    commit 200"),
        ("git diff HEAD~100; echo done", b"done"),
        ("git branch -a", b"* "),
        ("git help -a | head -n 3; echo done", b"done"),
        ("git commit --allow-empty; echo done", b"done"),
        ("git rebase -i HEAD~2; echo done", b"done"),
        ("less /etc/passwd; echo done", b"done"),
        ("systemctl status; echo done", b"done"),
        ("man ls; echo done", b"done"),
    ],
)
def test_it_ends_by_itself(shell, command, line):
    result = shell.run(command, timeout=30)
    assert not result.timed_out
    assert any(found.startswith(line) for found in result.stdout.splitlines())
    assert b"terminal is not fully functional" not in result.stdout

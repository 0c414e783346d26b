"""D09: large content never travels as one argument."""

import hashlib

import pytest

from forkgym.sandboxes import create
from forkgym.tasks.submission import from_json, of_files, to_json

UNIT = b'it\'s "quoted"\0$HOME `id`\n\xff'


@pytest.fixture(scope="module")
def box():
    with create() as box:
        yield box


@pytest.mark.parametrize("size", [131_071, 131_072, 2_100_000, 50_000_000])
def test_payloads_arrive_whole(box, size):
    data = (UNIT * (size // len(UNIT) + 1))[:size]
    due = hashlib.sha256(data).hexdigest()
    box.write_file("payload", data)
    assert box.exec("sha256sum <payload", timeout=60).stdout.split()[0].decode() == due
    assert box.exec("sha256sum", stdin=data, timeout=60).stdout.split()[0].decode() == due
    assert hashlib.sha256(box.read_file("payload")).hexdigest() == due


@pytest.mark.parametrize("size", [131_071, 131_072, 2_100_000])
def test_commands_of_any_length_run(box, size):
    command = f"echo {'x' * (size - 5 - 5)} | wc"[:size].ljust(size)
    due = str(size - 5 - 5)
    for run in (box.exec, box.shell().run):
        result = run(command, timeout=60)
        assert result.exit_code == 0
        assert result.stdout.split()[2].decode() == str(int(due) + 1)


@pytest.mark.parametrize("size", [131_072, 50_000_000])
def test_submissions_of_any_size_are_applied_whole(desk, size):
    data = (UNIT * (size // len(UNIT) + 1))[:size]
    assert desk.applied(desk.task(), from_json(to_json(of_files({"payload": data}))), "payload") == data

"""D10: output over the limit is marked as such; at the limit it is whole."""

import pytest

from forkgym.sandboxes import create


@pytest.fixture(scope="module")
def box():
    with create() as box:
        yield box


@pytest.mark.parametrize(("size", "truncated"), [(4095, False), (4096, False), (4097, True), (20_000, True)])
def test_a_limit_of_4096_bytes(box, size, truncated):
    command = f"head -c {size} /dev/zero | tr '\\0' x"
    for run in (box.exec, box.shell().run):
        result = run(command, max_output=4096)
        assert (result.truncated, result.total_bytes) == (truncated, size)
        assert len(result.stdout) == min(size, 4096)
    assert box.exec(command, max_output=None).stdout == b"x" * size

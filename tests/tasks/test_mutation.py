"""One-line mistakes: each is Python, changes one line, and is found in the source exactly once."""

from __future__ import annotations

import pytest

from forkgym import tasks
from forkgym.tasks.builders.mutation import Mutation, caught, propose, verified
from forkgym.tasks.workspace import Bases

SOURCE = """\
def clip(value, low):
    if value < low:
        return abs(low)
    return value.strip() + low
"""


def edits(source: str) -> set[tuple[int, str]]:
    """(line, that line with the mistake) of each proposal."""
    return {
        (mutation.line, mutation.apply(source).splitlines()[mutation.line - 1].strip()) for mutation in propose(source)
    }


def test_what_people_get_wrong_is_proposed() -> None:
    assert edits(SOURCE) == {
        (1, "def clip(low, value):"),
        (2, "if value <= low:"),
        (2, "if value > low:"),
        (2, "if low < low:"),
        (2, "if value < value:"),
        (3, "return abs(value)"),
        (3, "return (low)"),
        (4, "return value.strip() - low"),
        (4, "return value.strip() + value"),
        (4, "return low.strip() + low"),
        (4, "return value + low"),
    }


@pytest.mark.parametrize("task_id", ["swe/tiny/clamp/upper-bound", "swe/tiny/primes/never", "swe/tiny/slug/upper"])
def test_each_proposal_is_a_valid_edit_of_one_line(task_id: str) -> None:
    ((_, data),) = tasks.load(task_id)[0].oracle.items()
    source = (data or b"").decode()
    proposals = propose(source)
    assert len(proposals) >= 10
    assert len({mutation.apply(source) for mutation in proposals}) == len(proposals)
    for mutation in proposals:
        broken = mutation.apply(source)
        compile(broken, "broken", "exec")
        differing = [
            number
            for number, (old, new) in enumerate(zip(source.splitlines(), broken.splitlines(), strict=True), 1)
            if old != new
        ]
        assert differing == [mutation.line]
        assert source.count(mutation.find) == 1


def test_an_edit_that_is_not_unique_is_refused() -> None:
    with pytest.raises(ValueError, match="'low' occurs 4 times"):
        Mutation("variable", 2, "low", "value").apply(SOURCE)


def test_only_what_the_check_tells_apart_is_kept() -> None:
    def fails(text: str) -> bool:
        space: dict[str, object] = {}
        exec(text, space)
        return space["f"](3) != 4  # pyright: ignore

    source = "def f(n):\n    if n > 0:\n        return n + 1\n    return 0\n"
    kept = {mutation.apply(source).splitlines()[mutation.line - 1].strip() for mutation in verified(source, fails)}
    assert {"return n - 1", "return n + 2", "return n + 0", "if n < 0:"} <= kept
    assert not {"if n >= 0:", "return 1", "return -1"} & kept
    with pytest.raises(ValueError, match="fails its own check"):
        verified(source, lambda text: True)


def test_the_order_follows_the_seed() -> None:
    def order(seed: int | None) -> list[Mutation]:
        return list(verified(SOURCE, lambda text: text != SOURCE, seed))

    assert order(None) == propose(SOURCE)
    assert order(3) == order(3) != order(4)


def test_hidden_tests_are_the_check(bases: Bases) -> None:
    task = tasks.load("swe/tiny/second/largest")[0]
    fails = caught(task, "second.py", bases)
    ((_, data),) = task.oracle.items()
    source = (data or b"").decode()
    assert not fails(source)
    assert fails(source.replace("nums[1]", "nums[0]"))

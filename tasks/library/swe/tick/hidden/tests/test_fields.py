import pytest

from tick import Cron, CronError
from tick import fields


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("7", {7}),
        ("0,30", {0, 30}),
        ("10-13", {10, 11, 12, 13}),
        ("*/20", {0, 20, 40}),
        ("*/25", {0, 25, 50}),
        ("59", {59}),
        ("1,5-6,58-59", {1, 5, 6, 58, 59}),
    ],
)
def test_minutes(text, values):
    assert fields.parse(text, fields.MINUTE).values == values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("10-40/10", {10, 20, 30, 40}),
        ("10-39/10", {10, 20, 30}),
        ("5/20", {5, 25, 45}),
        ("59/5", {59}),
        ("3-3/7", {3}),
        ("0-4/2,58/1", {0, 2, 4, 58, 59}),
    ],
)
def test_steps(text, values):
    assert fields.parse(text, fields.MINUTE).values == values


def test_steps_of_other_fields():
    assert fields.parse("*/5", fields.DAY).values == {1, 6, 11, 16, 21, 26, 31}
    assert fields.parse("2/3", fields.MONTH).values == {2, 5, 8, 11}
    assert fields.parse("mon-fri/2", fields.WEEKDAY).values == {1, 3, 5}


@pytest.mark.parametrize(
    ("text", "values"),
    [("sun", {0}), ("7", {0}), ("0", {0}), ("5-7", {5, 6, 0}), ("SAT", {6}), ("mon-wed", {1, 2, 3}), ("*", set(range(7)))],
)
def test_weekdays(text, values):
    assert fields.parse(text, fields.WEEKDAY).values == values


@pytest.mark.parametrize(("text", "values"), [("jan", {1}), ("Oct-dec", {10, 11, 12}), ("*", set(range(1, 13)))])
def test_months(text, values):
    assert fields.parse(text, fields.MONTH).values == values


@pytest.mark.parametrize(
    "text",
    ["60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * 0 *", "* * * * 8", "5-1 * * * *",
     "*/0 * * * *", "*/x * * * *", "1- * * * *", "-1 * * * *", ", * * * *", "* * * * xyz", "* * * *", "* * * * * *", ""],
)
def test_refused(text):
    with pytest.raises(CronError):
        Cron(text)


def test_an_error_names_its_field():
    with pytest.raises(CronError, match="hour: 24"):
        Cron("0 24 * * *")

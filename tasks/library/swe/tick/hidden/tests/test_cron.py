from datetime import datetime

import pytest

from tick import Cron, NeverError

FRIDAY = datetime(2024, 5, 17, 17, 50)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("* * * * *", datetime(2024, 5, 17, 17, 51)),
        ("51 * * * *", datetime(2024, 5, 17, 17, 51)),
        ("50 17 * * *", datetime(2024, 5, 18, 17, 50)),
        ("10 18 * * *", datetime(2024, 5, 17, 18, 10)),
        ("10 * * * *", datetime(2024, 5, 17, 18, 10)),
        ("0 0 1 * *", datetime(2024, 6, 1)),
        ("0 0 1 1 *", datetime(2025, 1, 1)),
        ("*/15 8-17 * * mon-fri", datetime(2024, 5, 20, 8, 0)),
        ("0 12 * * sun", datetime(2024, 5, 19, 12, 0)),
        ("0 12 * * 7", datetime(2024, 5, 19, 12, 0)),
        ("59 23 31 12 *", datetime(2024, 12, 31, 23, 59)),
        ("5 5 31 * *", datetime(2024, 5, 31, 5, 5)),
    ],
)
def test_after(text, after):
    assert Cron(text).after(FRIDAY) == after


def test_seconds_are_dropped():
    cron = Cron("* * * * *")
    assert cron.after(datetime(2024, 5, 17, 17, 50, 59, 999999)) == datetime(2024, 5, 17, 17, 51)
    assert cron.after(datetime(2024, 12, 31, 23, 59, 1)) == datetime(2025, 1, 1)


def test_strictly_after():
    cron = Cron("0 8 * * *")
    assert cron.after(datetime(2024, 5, 17, 7, 59, 59)) == datetime(2024, 5, 17, 8)
    assert cron.after(datetime(2024, 5, 17, 8)) == datetime(2024, 5, 18, 8)
    assert cron.after(datetime(2024, 5, 17, 8, 0, 1)) == datetime(2024, 5, 18, 8)


def days(text, count, start=datetime(2024, 4, 30, 12)):
    found, cron = [], Cron(text)
    for _ in range(count):
        start = cron.after(start)
        found.append(start.strftime("%m-%d"))
    return found


def test_either_day_counts():
    # Fridays of May 2024: 3, 10, 17, 24, 31.
    assert days("0 0 13 * fri", 6) == ["05-03", "05-10", "05-13", "05-17", "05-24", "05-31"]


def test_either_day_counts_with_ranges():
    assert days("0 0 1-2,15 * 3", 6) == ["05-01", "05-02", "05-08", "05-15", "05-22", "05-29"]


def test_either_day_within_its_month():
    assert days("0 0 10 6 mon", 5) == ["06-03", "06-10", "06-17", "06-24", "06-02"]


def test_a_star_restricts_nothing():
    assert days("0 0 13 * *", 2) == ["05-13", "06-13"]
    assert days("0 0 * * fri", 3) == ["05-03", "05-10", "05-17"]


def test_a_star_with_a_step_takes_both():
    # 1, 11, 21 and 31, but only on Fridays.
    assert days("0 0 */10 * fri", 3) == ["05-31", "06-21", "10-11"]


@pytest.mark.parametrize(
    ("text", "start", "after"),
    [
        ("0 0 31 * *", datetime(2024, 6, 1), datetime(2024, 7, 31)),
        ("0 0 29 2 *", datetime(2024, 3, 1), datetime(2028, 2, 29)),
        ("0 0 29 2 *", datetime(2096, 3, 1), datetime(2104, 2, 29)),
        ("0 0 30 * *", datetime(2024, 1, 31), datetime(2024, 3, 30)),
    ],
)
def test_days_that_not_every_month_has(text, start, after):
    assert Cron(text).after(start) == after


@pytest.mark.parametrize("text", ["0 0 30 2 *", "0 0 31 4,6,9,11 *"])
def test_never(text):
    with pytest.raises(NeverError):
        Cron(text).after(FRIDAY)

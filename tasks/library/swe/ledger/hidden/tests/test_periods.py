from datetime import date

import pytest

from ledgerline import periods


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2024-01", date(2024, 1, 1), date(2024, 1, 31)),
        ("2024-02", date(2024, 2, 1), date(2024, 2, 29)),
        ("2023-02", date(2023, 2, 1), date(2023, 2, 28)),
        ("2024-11", date(2024, 11, 1), date(2024, 11, 30)),
        ("2024-Q1", date(2024, 1, 1), date(2024, 3, 31)),
        ("2024-Q3", date(2024, 7, 1), date(2024, 9, 30)),
        ("2024-05-17", date(2024, 5, 17), date(2024, 5, 17)),
        ("2024-02..2024-03-15", date(2024, 2, 1), date(2024, 3, 15)),
    ],
)
def test_within_a_year(text, first, last):
    assert periods.parse(text) == periods.Period(first, last)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2024-12", date(2024, 12, 1), date(2024, 12, 31)),
        ("2024-Q4", date(2024, 10, 1), date(2024, 12, 31)),
        ("2024", date(2024, 1, 1), date(2024, 12, 31)),
        ("2023-Q4..2024", date(2023, 10, 1), date(2024, 12, 31)),
    ],
)
def test_up_to_the_end_of_a_year(text, first, last):
    assert periods.parse(text) == periods.Period(first, last)


def test_both_ends_belong():
    period = periods.parse("2024-02")
    assert date(2024, 2, 1) in period
    assert date(2024, 2, 29) in period
    assert date(2024, 1, 31) not in period
    assert date(2024, 3, 1) not in period


@pytest.mark.parametrize("text", ["", "24", "2024-Q5", "2024-13", "2024-02-30", "2024-1", "2024-03..2024-02"])
def test_refused(text):
    with pytest.raises(ValueError):
        periods.parse(text)

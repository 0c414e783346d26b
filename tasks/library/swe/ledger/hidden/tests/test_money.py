import pytest

from ledgerline import money


@pytest.mark.parametrize(
    ("text", "cents"), [("0", 0), ("7", 700), ("7.5", 750), ("-0.05", -5), ("+12.34", 1234), ("-3", -300)]
)
def test_parse(text, cents):
    assert money.parse(text) == cents


@pytest.mark.parametrize("text", ["", "1.234", "1,50", "--1", "ten", "1."])
def test_parse_refuses(text):
    with pytest.raises(ValueError, match="not an amount"):
        money.parse(text)


@pytest.mark.parametrize(
    ("cents", "text"), [(0, "0.00"), (5, "0.05"), (123456, "1234.56"), (700, "7.00"), (99, "0.99")]
)
def test_show(cents, text):
    assert money.show(cents) == text


@pytest.mark.parametrize(("cents", "text"), [(-5, "-0.05"), (-100, "-1.00"), (-195, "-1.95"), (-80001, "-800.01")])
def test_show_debts(cents, text):
    assert money.show(cents) == text


@pytest.mark.parametrize("cents", [-1234, -100, -99, -1, 0, 1, 99, 100, 4321])
def test_show_then_parse(cents):
    assert money.parse(money.show(cents)) == cents


def test_share_even():
    assert money.share(900, [1, 1, 1]) == [300, 300, 300]
    assert money.share(900, [2, 1, 0]) == [600, 300, 0]


@pytest.mark.parametrize(
    ("total", "weights", "shares"),
    [
        (1000, [1, 1, 1], [334, 333, 333]),
        (1001, [1, 1, 1], [334, 334, 333]),
        (100, [2, 1], [67, 33]),
        (100, [1, 5], [17, 83]),
        (101, [1, 1, 6], [13, 12, 76]),
        (1, [1, 1], [1, 0]),
        (5, [0, 3, 0], [0, 5, 0]),
    ],
)
def test_share_leftover(total, weights, shares):
    assert money.share(total, weights) == shares


def test_share_debt():
    assert money.share(-1000, [1, 1, 1]) == [-334, -333, -333]
    assert money.share(-100, [1, 5]) == [-17, -83]


def test_share_always_adds_up():
    for total in range(-50, 51):
        for weights in ([1, 2, 3], [7, 7, 7, 1], [1], [0, 1, 12]):
            assert sum(money.share(total, weights)) == total


@pytest.mark.parametrize("weights", [[0, 0], [1, -1, 1], []])
def test_share_refuses(weights):
    with pytest.raises(ValueError):
        money.share(100, weights)

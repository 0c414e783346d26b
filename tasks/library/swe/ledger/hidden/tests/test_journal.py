import pytest

from ledgerline import journal

Posting = journal.Posting


def one(text):
    (transaction,) = journal.parse(text)
    return transaction


@pytest.mark.parametrize(
    ("line", "payee"),
    [
        ("2024-03-01 Corner shop", "Corner shop"),
        ("2024-03-01 Corner shop ; a comment", "Corner shop"),
        ('2024-03-01 "Corner shop; open late"', "Corner shop; open late"),
        ('2024-03-01 "a;b;c" ; d', "a;b;c"),
        ('2024-03-01 "quoted" ; "not ; the payee"', "quoted"),
        ("2024-03-01", ""),
    ],
)
def test_payee(line, payee):
    assert one(line + "\n  Assets:Cash  1.00 EUR\n  Income:Gift\n").payee == payee


def test_comment_after_posting():
    found = one("2024-03-01 x\n  Assets:Cash  1.00 EUR ; here\n  Income:Gift ; there\n; whole line\n")
    assert found.postings == [Posting("Assets:Cash", 100, "EUR"), Posting("Income:Gift", -100, "EUR")]


def test_missing_amount_with_two_currencies():
    found = one("2024-03-01 x\n  Assets:Cash  1.00 EUR\n  Assets:Bank  2.50 USD\n  Income:Gift\n")
    assert found.postings[2:] == [Posting("Income:Gift", -100, "EUR"), Posting("Income:Gift", -250, "USD")]


def test_missing_amount_skips_a_currency_that_is_even():
    found = one("2024-03-01 x\n  A  1.00 EUR\n  B  -1.00 EUR\n  C  3.00 CHF\n  D  9.00 USD\n  Income:Gift\n")
    gifts = [posting for posting in found.postings[4:] if posting.cents]
    assert gifts == [Posting("Income:Gift", -300, "CHF"), Posting("Income:Gift", -900, "USD")]


def test_missing_amount_first():
    found = one("2024-03-01 x\n  Income:Gift\n  A  1.00 EUR\n  B  -2.00 USD\n")
    assert sorted(posting.cents for posting in found.postings if posting.account == "Income:Gift") == [-100, 200]


def test_missing_amount_stays_with_its_transaction():
    first, second = journal.parse(
        "2024-03-01 a\n  Assets:Cash  1.00 EUR\n  Income:Gift\n"
        "2024-03-02 b\n  Assets:Cash  -3.00 EUR\n  Expenses:Food  3.00 EUR\n"
    )
    assert first.postings[1] == Posting("Income:Gift", -100, "EUR")
    assert second.postings == [Posting("Assets:Cash", -300, "EUR"), Posting("Expenses:Food", 300, "EUR")]


def test_missing_amount_twice():
    with pytest.raises(journal.JournalError, match="line 4"):
        journal.parse("2024-03-01 x\n  A  1.00 EUR\n  B\n  C\n")


def test_unbalanced():
    with pytest.raises(journal.JournalError, match=r"line 1: .*0\.05 EUR"):
        journal.parse("2024-03-01 x\n  A  1.05 EUR\n  B  -1.00 EUR\n")


def test_unbalanced_in_the_middle():
    with pytest.raises(journal.JournalError, match="line 1"):
        journal.parse("2024-03-01 x\n  A  1.00 EUR\n  B  -2.00 EUR\n2024-03-02 y\n  A  1.00 EUR\n  B\n")


def test_bad_date_names_its_line():
    with pytest.raises(journal.JournalError, match="line 2"):
        journal.parse("\n2024-02-30 x\n")

from datetime import date

import pytest

from ledgerline import journal, periods, report
from ledgerline.cli import main

TEXT = """\
2024-01-05 Salary
  Assets:Bank:Giro       2000.00 EUR
  Income:Work

2024-02-01 Savings
  Assets:Bank:Savings     500.00 EUR
  Assets:Bank:Giro

2024-02-10 Deposit box
  Assets:Bankbox           40.00 EUR
  Assets:Bank:Giro

2023-12-31 Gift
  Assets:Bank              25.00 USD
  Income:Gift

2024-12-31 Party
  Expenses:Fun             10.01 EUR
  Assets:Bank:Giro
"""


@pytest.fixture
def transactions():
    return journal.parse(TEXT)


def test_depth(transactions):
    assert report.balances(transactions, depth=2) == {
        ("Assets:Bank", "EUR"): 194999,
        ("Assets:Bank", "USD"): 2500,
        ("Assets:Bankbox", "EUR"): 4000,
        ("Expenses:Fun", "EUR"): 1001,
        ("Income:Gift", "USD"): -2500,
        ("Income:Work", "EUR"): -200000,
    }


def test_balances_of_a_quarter(transactions):
    assert report.balances(transactions, periods.parse("2024-Q1"), depth=1) == {
        ("Assets", "EUR"): 200000,
        ("Income", "EUR"): -200000,
    }


def test_register_takes_the_accounts_below(transactions):
    rows = [(day, posting.account, total) for day, _, posting, total in report.register(transactions, "Assets:Bank")]
    assert rows == [
        (date(2023, 12, 31), "Assets:Bank", 2500),
        (date(2024, 1, 5), "Assets:Bank:Giro", 200000),
        (date(2024, 2, 1), "Assets:Bank:Savings", 250000),
        (date(2024, 2, 1), "Assets:Bank:Giro", 200000),
        (date(2024, 2, 10), "Assets:Bank:Giro", 196000),
        (date(2024, 12, 31), "Assets:Bank:Giro", 194999),
    ]


def test_register_of_a_leaf(transactions):
    assert [total for *_, total in report.register(transactions, "Assets:Bank:Savings")] == [50000]
    assert list(report.register(transactions, "Assets:Ban")) == []


def test_holds_keeps_to_its_account(transactions):
    assert report.holds(transactions, "Assets:Bank") == {"EUR": 194999, "USD": 2500}
    assert report.holds(transactions, "Assets") == {"EUR": 198999, "USD": 2500}


def test_commands(tmp_path, capsys):
    path = tmp_path / "journal.txt"
    path.write_text(TEXT)
    assert main(["balance", str(path), "--period", "2024-12-31"]) == 0
    assert capsys.readouterr().out == "      -10.01 EUR  Assets:Bank:Giro\n       10.01 EUR  Expenses:Fun\n"
    assert main(["share", str(path), "Expenses", "ann=2", "bob"]) == 0
    assert capsys.readouterr().out == "        6.67 EUR  ann\n        3.34 EUR  bob\n"


def test_command_reports_a_bad_journal(tmp_path, capsys):
    path = tmp_path / "journal.txt"
    path.write_text("hello\n")
    assert main(["balance", str(path)]) == 1
    assert "line 1" in capsys.readouterr().err

from ledgerline import journal, money, periods, report

TEXT = """
2024-01-05 Salary
  Assets:Bank       2000.00 EUR
  Income:Work

2024-02-10 Rent
  Expenses:Home      800.00 EUR
  Assets:Bank
"""


def test_balances():
    found = report.balances(journal.parse(TEXT))
    assert found[("Assets:Bank", "EUR")] == 120000


def test_period():
    found = report.balances(journal.parse(TEXT), periods.parse("2024-01"))
    assert found == {("Assets:Bank", "EUR"): 200000, ("Income:Work", "EUR"): -200000}


def test_amounts():
    assert money.parse("12.50") == 1250
    assert money.show(1250) == "12.50"


def test_share():
    assert money.share(900, [2, 1]) == [600, 300]

"""The command line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ledgerline import journal, money, periods, report


def main(arguments: list[str]) -> int:
    """Run one command; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        transactions = journal.parse(Path(options.journal).read_text("utf-8"))
        for line in options.run(transactions, options):
            print(line)
    except (OSError, ValueError) as error:
        print(f"ledgerline: {error}", file=sys.stderr)
        return 1
    return 0


def _balance(transactions, options):
    period = periods.parse(options.period) if options.period else None
    for (account, currency), cents in report.balances(transactions, period, options.depth).items():
        yield f"{money.show(cents):>12} {currency}  {account}"


def _register(transactions, options):
    for day, payee, posting, total in report.register(transactions, options.account):
        yield f"{day}  {payee:<24.24} {money.show(posting.cents):>12} {money.show(total):>12} {posting.currency}"


def _share(transactions, options):
    names, weights = zip(*(_weight(text) for text in options.weights), strict=True)
    for currency, cents in report.holds(transactions, options.account).items():
        for name, part in zip(names, money.share(cents, list(weights)), strict=True):
            yield f"{money.show(part):>12} {currency}  {name}"


def _weight(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    return name, int(number or "1")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ledgerline")
    commands = parser.add_subparsers(required=True)
    balance = commands.add_parser("balance")
    balance.add_argument("journal")
    balance.add_argument("--period")
    balance.add_argument("--depth", type=int)
    balance.set_defaults(run=_balance)
    register = commands.add_parser("register")
    register.add_argument("journal")
    register.add_argument("account")
    register.set_defaults(run=_register)
    share = commands.add_parser("share")
    share.add_argument("journal")
    share.add_argument("account")
    share.add_argument("weights", nargs="+", metavar="NAME=WEIGHT")
    share.set_defaults(run=_share)
    return parser

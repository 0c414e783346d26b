"""What a journal adds up to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import date

from ledgerline.journal import Posting, Transaction
from ledgerline.periods import Period

Balances = dict[tuple[str, str], int]


def balances(transactions: Iterable[Transaction], period: Period | None = None, depth: int | None = None) -> Balances:
    """(account, currency) to cents; accounts that are even are left out. ``depth`` folds deeper accounts."""
    sums: Balances = defaultdict(int)
    for transaction in transactions:
        if period is None or transaction.day in period:
            for posting in transaction.postings:
                sums[(_folded(posting.account, depth), posting.currency)] += posting.cents
    return {key: cents for key, cents in sorted(sums.items()) if cents}


def register(transactions: Iterable[Transaction], account: str) -> Iterator[tuple[date, str, Posting, int]]:
    """Each posting to ``account`` or below it, by date, with the running total of its currency."""
    totals: dict[str, int] = defaultdict(int)
    for transaction in sorted(transactions, key=lambda transaction: transaction.day):
        for posting in transaction.postings:
            if within(posting.account, account):
                totals[posting.currency] += posting.cents
                yield transaction.day, transaction.payee, posting, totals[posting.currency]


def holds(transactions: Iterable[Transaction], account: str) -> dict[str, int]:
    """Currency to cents, of an account and all below it."""
    sums: dict[str, int] = defaultdict(int)
    for (name, currency), cents in balances(transactions).items():
        if within(name, account):
            sums[currency] += cents
    return dict(sums)


def within(account: str, parent: str) -> bool:
    """Whether ``account`` is ``parent`` or lies below it."""
    return account == parent or account.startswith(parent + ":")


def _folded(account: str, depth: int | None) -> str:
    return account if depth is None else ":".join(account.split(":")[:depth])

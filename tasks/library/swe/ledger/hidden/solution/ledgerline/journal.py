"""From the text of a journal to transactions."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date

from ledgerline import money

_HEAD = re.compile(r"(\d{4}-\d{2}-\d{2})(?:\s+(.*))?")
_AMOUNT = re.compile(r"(\S+)\s+([A-Z]{3})")


class JournalError(ValueError):
    """What is wrong with a journal, and in which line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


@dataclass(frozen=True)
class Posting:
    account: str
    cents: int
    currency: str


@dataclass
class Transaction:
    day: date
    payee: str
    line: int
    postings: list[Posting] = field(default_factory=list)


def parse(text: str) -> list[Transaction]:
    """The transactions of a journal, in the order of the file. Raises ``JournalError``."""
    found: list[Transaction] = []
    open_account: str | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = _without_comment(raw)
        if not line.strip():
            continue
        if not line[0].isspace():
            _close(found, open_account)
            open_account = None
            found.append(_head(line, number))
            continue
        if not found:
            raise JournalError(number, "a posting before the first transaction")
        account, amount = _posting(line, number)
        if amount is None:
            if open_account is not None:
                raise JournalError(number, "a second posting without an amount")
            open_account = account
        else:
            found[-1].postings.append(Posting(account, *amount))
    _close(found, open_account)
    return found


def _without_comment(line: str) -> str:
    quoted = False
    for place, letter in enumerate(line):
        if letter == '"':
            quoted = not quoted
        elif letter == ";" and not quoted:
            return line[:place].rstrip()
    return line.rstrip()


def _head(line: str, number: int) -> Transaction:
    match = _HEAD.fullmatch(line)
    if match is None:
        raise JournalError(number, "expected a date such as 2024-03-01")
    try:
        day = date.fromisoformat(match[1])
    except ValueError as error:
        raise JournalError(number, str(error)) from error
    payee = (match[2] or "").strip()
    if len(payee) >= 2 and payee[0] == payee[-1] == '"':
        payee = payee[1:-1]
    return Transaction(day, payee, number)


def _posting(line: str, number: int) -> tuple[str, tuple[int, str] | None]:
    account, _, rest = line.strip().partition(" ")
    if not rest.strip():
        return account, None
    match = _AMOUNT.fullmatch(rest.strip())
    if match is None:
        raise JournalError(number, f"expected an amount such as 12.50 EUR, not {rest.strip()!r}")
    try:
        return account, (money.parse(match[1]), match[2])
    except ValueError as error:
        raise JournalError(number, str(error)) from error


def _close(found: list[Transaction], open_account: str | None) -> None:
    """Balance the last transaction."""
    if not found:
        return
    last = found[-1]
    sums: dict[str, int] = defaultdict(int)
    for posting in last.postings:
        sums[posting.currency] += posting.cents
    if open_account is not None:
        last.postings.extend(Posting(open_account, -cents, currency) for currency, cents in sums.items() if cents)
    elif unbalanced := {currency: cents for currency, cents in sums.items() if cents}:
        currency, cents = next(iter(unbalanced.items()))
        raise JournalError(last.line, f"does not balance: {money.show(cents)} {currency} too much")

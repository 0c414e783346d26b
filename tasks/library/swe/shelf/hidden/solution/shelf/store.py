"""Books and loans in SQLite."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from datetime import date, timedelta

from shelf.errors import BadInput, Conflict, NotFound

LOAN_DAYS = 28
MAX_LOANS = 5

_SCHEMA = """
CREATE TABLE IF NOT EXISTS books (
    id INTEGER PRIMARY KEY, title TEXT NOT NULL, author TEXT NOT NULL, copies INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS loans (
    id INTEGER PRIMARY KEY, book INTEGER NOT NULL REFERENCES books(id), reader TEXT NOT NULL,
    lent TEXT NOT NULL, due TEXT NOT NULL, returned TEXT
);
CREATE INDEX IF NOT EXISTS open_loans ON loans(book) WHERE returned IS NULL;
"""
_BOOK = """
SELECT id, title, author, copies,
       copies - (SELECT count(*) FROM loans WHERE book = books.id AND returned IS NULL) AS free
FROM books
"""
_MATCH = "WHERE title LIKE :like ESCAPE '\\' OR author LIKE :like ESCAPE '\\'"


class Store:
    """One database file. Use it as a context manager, or ``close`` it."""

    def __init__(self, path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, timeout=10, check_same_thread=False)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA foreign_keys = ON")
        self._db.executescript(_SCHEMA)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    def add_book(self, title: str, author: str, copies: int) -> dict:
        if not title or not author or copies < 1:
            raise BadInput("a book needs a title, an author and at least one copy")
        cursor = self._db.execute(
            "INSERT INTO books (title, author, copies) VALUES (?, ?, ?)", (title, author, copies)
        )
        return self.book(cursor.lastrowid)

    def book(self, book_id: int) -> dict:
        row = self._db.execute(f"{_BOOK} WHERE id = ?", (book_id,)).fetchone()
        if row is None:
            raise NotFound(f"there is no book {book_id}")
        return dict(row)

    def books(self, text: str = "", page: int = 1, size: int = 20) -> tuple[list[dict], int]:
        """One page of the books that contain ``text`` in title or author, and how many there are in all."""
        if page < 1 or not 1 <= size <= 100:
            raise BadInput("pages count from 1, and their size is 1 to 100")
        values = {"like": f"%{_escaped(text)}%", "size": size, "skip": (page - 1) * size}
        total = self._db.execute(f"SELECT count(*) FROM books {_MATCH}", values).fetchone()[0]
        rows = self._db.execute(
            f"{_BOOK} {_MATCH} ORDER BY title COLLATE NOCASE, id LIMIT :size OFFSET :skip", values
        )
        return [dict(row) for row in rows], total

    def lend(self, reader: str, books: list[int], day: str) -> list[dict]:
        """Lend one copy of each book, or nothing if one of them cannot be lent."""
        if not reader or not books:
            raise BadInput("a loan needs a reader and at least one book")
        start = _day(day)
        with self._transaction():
            loans = [self._lend_one(reader, book_id, start) for book_id in books]
            if len(self.open_loans(reader)) > MAX_LOANS:
                raise Conflict(f"{reader} would hold more than {MAX_LOANS} books")
        return loans

    def give_back(self, loan_id: int, day: str) -> dict:
        returned = _day(day)
        with self._transaction():
            loan = self._loan(loan_id)
            if loan["returned"] is not None:
                raise Conflict(f"loan {loan_id} was returned on {loan['returned']}")
            if returned.isoformat() < loan["lent"]:
                raise BadInput(f"loan {loan_id} began on {loan['lent']}, after {day}")
            self._db.execute("UPDATE loans SET returned = ? WHERE id = ?", (returned.isoformat(), loan_id))
            return self._loan(loan_id)

    def open_loans(self, reader: str) -> list[dict]:
        rows = self._db.execute("SELECT * FROM loans WHERE reader = ? AND returned IS NULL ORDER BY id", (reader,))
        return [dict(row) for row in rows]

    def overdue(self, day: str) -> list[dict]:
        """Open loans that are late on this day, the latest first."""
        rows = self._db.execute(
            "SELECT * FROM loans WHERE returned IS NULL AND due < ? ORDER BY due, id", (_day(day).isoformat(),)
        )
        return [dict(row) for row in rows]

    def _lend_one(self, reader: str, book_id: int, start: date) -> dict:
        if self.book(book_id)["free"] < 1:
            raise Conflict(f"no copy of book {book_id} is free")
        due = start + timedelta(days=LOAN_DAYS)
        cursor = self._db.execute(
            "INSERT INTO loans (book, reader, lent, due) VALUES (?, ?, ?, ?)",
            (book_id, reader, start.isoformat(), due.isoformat()),
        )
        return self._loan(cursor.lastrowid)

    def _loan(self, loan_id: int) -> dict:
        row = self._db.execute("SELECT * FROM loans WHERE id = ?", (loan_id,)).fetchone()
        if row is None:
            raise NotFound(f"there is no loan {loan_id}")
        return dict(row)

    @contextmanager
    def _transaction(self):
        """All or nothing. Takes the write lock at once, so that what is read inside stays true until the end."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


def _escaped(text: str) -> str:
    for letter in "\\%_":
        text = text.replace(letter, "\\" + letter)
    return text


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise BadInput(f"not a day such as 2024-05-31: {text!r}") from error

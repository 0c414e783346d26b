"""HTTP on top of the store: a WSGI application."""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from urllib.parse import parse_qs, unquote

from shelf.errors import BadInput, NotFound, ShelfError
from shelf.store import Store

MAX_BODY = 64 * 1024


class App:
    """``App(store)`` is a WSGI application."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._routes = [
            ("GET", r"/books", self._books),
            ("POST", r"/books", self._add_book),
            ("GET", r"/books/(\d+)", self._book),
            ("POST", r"/loans", self._lend),
            ("POST", r"/loans/(\d+)/return", self._give_back),
            ("GET", r"/readers/([^/]+)/loans", self._loans),
            ("GET", r"/overdue", self._overdue),
        ]

    def __call__(self, environ, start_response):
        try:
            status, answer = self._answer(environ)
        except ShelfError as error:
            status, answer = error.status, {"error": str(error)}
        body = json.dumps(answer, ensure_ascii=False).encode()
        headers = [("Content-Type", "application/json; charset=utf-8"), ("Content-Length", str(len(body)))]
        start_response(f"{status} {HTTPStatus(status).phrase}", headers)
        return [body]

    def _answer(self, environ):
        # WSGI hands over the bytes of the path as Latin-1.
        path = environ.get("PATH_INFO", "/").encode("latin-1").decode("utf-8", "replace")
        for method, pattern, handle in self._routes:
            match = re.fullmatch(pattern, path)
            if match and method == environ["REQUEST_METHOD"]:
                return handle(environ, *map(unquote, match.groups()))
        raise NotFound(f"no such resource: {environ['REQUEST_METHOD']} {path}")

    def _books(self, environ):
        query = _query(environ)
        items, total = self._store.books(query.get("q", ""), _number(query, "page", 1), _number(query, "size", 20))
        return 200, {"items": items, "total": total}

    def _add_book(self, environ):
        body = _body(environ)
        return 201, self._store.add_book(_text(body, "title"), _text(body, "author"), _whole(body.get("copies", 1)))

    def _book(self, environ, book_id):
        return 200, self._store.book(int(book_id))

    def _lend(self, environ):
        body = _body(environ)
        books = body.get("books")
        if not isinstance(books, list):
            raise BadInput("'books' must be a list of book ids")
        loans = self._store.lend(_text(body, "reader"), [_whole(book) for book in books], _text(body, "day"))
        return 201, {"items": loans, "total": len(loans)}

    def _give_back(self, environ, loan_id):
        return 200, self._store.give_back(int(loan_id), _text(_body(environ), "day"))

    def _loans(self, environ, reader):
        loans = self._store.open_loans(reader)
        return 200, {"items": loans, "total": len(loans)}

    def _overdue(self, environ):
        loans = self._store.overdue(_query(environ).get("day", ""))
        return 200, {"items": loans, "total": len(loans)}


def _query(environ) -> dict[str, str]:
    return {key: values[-1] for key, values in parse_qs(environ.get("QUERY_STRING", "")).items()}


def _number(query: dict[str, str], name: str, default: int) -> int:
    try:
        return int(query.get(name, default))
    except ValueError as error:
        raise BadInput(f"{name!r} must be a number") from error


def _body(environ) -> dict:
    length = int(environ.get("CONTENT_LENGTH") or 0)
    if length > MAX_BODY:
        raise BadInput(f"at most {MAX_BODY} bytes are taken")
    try:
        body = json.loads(environ["wsgi.input"].read(length))
    except ValueError as error:
        raise BadInput("the body must be JSON") from error
    if not isinstance(body, dict):
        raise BadInput("the body must be a JSON object")
    return body


def _text(body: dict, name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{name!r} must be a text that is not blank")
    return value.strip()


def _whole(value) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadInput(f"expected a whole number, not {value!r}")
    return value

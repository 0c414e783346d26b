import io
import json

import pytest

from shelf.app import App
from shelf.store import Store


@pytest.fixture
def call(tmp_path):
    with Store(tmp_path / "shelf.db") as store:
        app = App(store)

        def request(method, path, body=None, query=""):
            data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
            environ = {
                "REQUEST_METHOD": method,
                "PATH_INFO": path.encode().decode("latin-1"),
                "QUERY_STRING": query,
                "CONTENT_LENGTH": str(len(data)),
                "wsgi.input": io.BytesIO(data),
            }
            seen = {}

            def start_response(status, headers):
                seen["status"], seen["headers"] = int(status.split()[0]), dict(headers)

            text = b"".join(app(environ, start_response))
            assert int(seen["headers"]["Content-Length"]) == len(text)
            return seen["status"], json.loads(text)

        yield request


@pytest.fixture
def book(call):
    status, answer = call("POST", "/books", {"title": "Emma", "author": "Jane Austen", "copies": 2})
    assert status == 201
    return answer


def test_book(call, book):
    assert call("GET", f"/books/{book['id']}") == (200, {**book, "free": 2})


def test_missing_book(call):
    assert call("GET", "/books/77")[0] == 404
    assert call("GET", "/nowhere")[0] == 404


def test_text_outside_ascii(call):
    status, answer = call("POST", "/books", {"title": "Käthe — 猫", "author": "Ł. Ż.", "copies": 1})
    assert (status, answer["title"], answer["author"]) == (201, "Käthe — 猫", "Ł. Ż.")


def test_search_query(call, book):
    call("POST", "/books", {"title": "Dracula", "author": "Bram Stoker"})
    assert call("GET", "/books", query="q=jane+aus")[1]["total"] == 1
    assert [item["title"] for item in call("GET", "/books", query="page=2&size=1")[1]["items"]] == ["Emma"]
    assert call("GET", "/books", query="page=x")[0] == 400


def test_reader_with_a_space_and_umlaut(call, book):
    assert call("POST", "/loans", {"reader": "Jörg K", "books": [book["id"]], "day": "2024-05-01"})[0] == 201
    assert call("GET", "/readers/Jörg K/loans")[1]["total"] == 1
    assert call("GET", "/readers/J%C3%B6rg K/loans")[1]["total"] == 1


def test_lend_and_return(call, book):
    status, answer = call("POST", "/loans", {"reader": "ann", "books": [book["id"]], "day": "2024-05-01"})
    assert (status, answer["total"]) == (201, 1)
    path = f"/loans/{answer['items'][0]['id']}/return"
    assert call("POST", path, {"day": "2024-05-02"})[0] == 200
    assert call("POST", path, {"day": "2024-05-02"})[0] == 409
    assert call("GET", f"/books/{book['id']}")[1]["free"] == 2


def test_lend_one_copy_too_many(call, book):
    wanted = [book["id"]] * 3
    assert call("POST", "/loans", {"reader": "ann", "books": wanted, "day": "2024-05-01"})[0] == 409
    assert call("GET", f"/books/{book['id']}")[1]["free"] == 2
    assert call("GET", "/readers/ann/loans")[1] == {"items": [], "total": 0}


@pytest.mark.parametrize(("day", "total"), [("2024-05-29", 0), ("2024-05-30", 1)])
def test_overdue(call, book, day, total):
    call("POST", "/loans", {"reader": "ann", "books": [book["id"]], "day": "2024-05-01"})
    assert call("GET", "/overdue", query=f"day={day}")[1]["total"] == total


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"",
        b"[1]",
        b"\xff\xfe",
        {"author": "x"},
        {"title": " ", "author": "x"},
        {"title": "x", "author": "y", "copies": "2"},
        {"title": "x", "author": "y", "copies": 0},
        {"title": "x", "author": "y", "copies": True},
        {"title": 5, "author": "y"},
    ],
)
def test_bad_book(call, body):
    status, answer = call("POST", "/books", body)
    assert status == 400
    assert answer["error"]
    assert call("GET", "/books")[1]["total"] == 0


@pytest.mark.parametrize(
    "change", [{"books": "1"}, {"books": []}, {"books": ["1"]}, {"reader": ""}, {"day": "May"}, {"day": "2024-02-30"}]
)
def test_bad_loan(call, book, change):
    body = {"reader": "ann", "books": [book["id"]], "day": "2024-05-01", **change}
    assert call("POST", "/loans", body)[0] == 400
    assert call("GET", f"/books/{book['id']}")[1]["free"] == 2

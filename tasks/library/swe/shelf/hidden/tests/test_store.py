import sqlite3
import threading
import time

import pytest

from shelf.errors import BadInput, Conflict, NotFound
from shelf.store import Store

DAY = "2024-05-01"


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "shelf.db") as found:
        yield found


@pytest.fixture
def ids(store):
    return [store.add_book(title, "Anon", 1)["id"] for title in ("A", "B", "C", "D", "E", "F")]


def free(store, ids):
    return [store.book(book_id)["free"] for book_id in ids]


def test_lend_several(store, ids):
    loans = store.lend("ann", ids[:3], DAY)
    assert [loan["book"] for loan in loans] == ids[:3]
    assert {loan["due"] for loan in loans} == {"2024-05-29"}
    assert free(store, ids) == [0, 0, 0, 1, 1, 1]


def test_a_taken_book_lends_nothing(store, ids):
    store.lend("bob", [ids[2]], DAY)
    with pytest.raises(Conflict):
        store.lend("ann", ids[:3], DAY)
    assert store.open_loans("ann") == []
    assert free(store, ids) == [1, 1, 0, 1, 1, 1]


def test_an_unknown_book_lends_nothing(store, ids):
    with pytest.raises(NotFound):
        store.lend("ann", [ids[0], 999], DAY)
    assert store.open_loans("ann") == []
    assert free(store, ids)[0] == 1


def test_too_many_books_lend_nothing(store, ids):
    with pytest.raises(Conflict):
        store.lend("ann", ids, DAY)
    assert store.open_loans("ann") == []
    assert len(store.lend("ann", ids[:5], DAY)) == 5


def test_the_store_is_of_use_after_a_refusal(store, ids):
    for _ in range(3):
        with pytest.raises(NotFound):
            store.lend("ann", [999], DAY)
    assert len(store.lend("ann", ids[:1], DAY)) == 1


def test_a_refusal_holds_no_lock(tmp_path, store, ids):
    with pytest.raises(NotFound):
        store.lend("ann", [999], DAY)
    with Store(tmp_path / "shelf.db") as other:
        assert len(other.lend("bob", ids[:1], DAY)) == 1


def race(path, *calls):
    """Let all calls begin while somebody else writes, and go on together. Each is (reader, books)."""
    results = []

    def lend(reader, books):
        with Store(path) as own:
            try:
                own.lend(reader, books, DAY)
                results.append("lent")
            except Exception as error:
                results.append(type(error).__name__)

    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    threads = [threading.Thread(target=lend, args=call) for call in calls]
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    writer.execute("ROLLBACK")
    writer.close()
    for thread in threads:
        thread.join()
    return sorted(results)


def test_the_last_copy_is_lent_once(tmp_path, store, ids):
    assert race(tmp_path / "shelf.db", ("ann", ids[:1]), ("bob", ids[:1])) == ["Conflict", "lent"]
    assert store.book(ids[0])["free"] == 0


def test_the_last_of_several_is_lent_once(tmp_path, store):
    book_id = store.add_book("Two", "Anon", 2)["id"]
    calls = [(reader, [book_id]) for reader in ("ann", "bob", "cid")]
    assert race(tmp_path / "shelf.db", *calls) == ["Conflict", "lent", "lent"]
    assert store.book(book_id)["free"] == 0


def test_a_reader_cannot_race_to_more_than_five(tmp_path, store, ids):
    assert race(tmp_path / "shelf.db", ("ann", ids[:3]), ("ann", ids[3:])) == ["Conflict", "lent"]
    assert len(store.open_loans("ann")) == 3


def test_a_race_for_different_books_has_no_loser(tmp_path, store, ids):
    assert race(tmp_path / "shelf.db", ("ann", ids[:1]), ("bob", ids[1:2])) == ["lent", "lent"]


def test_give_back_twice(store, ids):
    (loan,) = store.lend("ann", ids[:1], DAY)
    assert store.give_back(loan["id"], "2024-05-03")["returned"] == "2024-05-03"
    with pytest.raises(Conflict, match="2024-05-03"):
        store.give_back(loan["id"], "2024-05-04")
    assert free(store, ids)[0] == 1


def test_give_back_before_it_was_lent(store, ids):
    (loan,) = store.lend("ann", ids[:1], DAY)
    with pytest.raises(BadInput):
        store.give_back(loan["id"], "2024-04-30")
    assert free(store, ids)[0] == 0


@pytest.mark.parametrize(("day", "late"), [("2024-05-28", 0), ("2024-05-29", 0), ("2024-05-30", 1), ("2025-01-01", 1)])
def test_overdue(store, ids, day, late):
    store.lend("ann", ids[:1], DAY)
    assert len(store.overdue(day)) == late


def test_overdue_at_the_end_of_february(store, ids):
    store.lend("ann", ids[:1], "2024-02-01")
    store.lend("bob", ids[1:2], "2023-02-01")
    assert [loan["reader"] for loan in store.overdue("2024-02-29")] == ["bob"]
    assert [loan["reader"] for loan in store.overdue("2023-03-01")] == []
    assert [loan["reader"] for loan in store.overdue("2024-03-01")] == ["bob", "ann"]


def test_overdue_leaves_out_what_is_back(store, ids):
    first, _ = store.lend("ann", ids[:2], DAY)
    store.give_back(first["id"], "2024-07-01")
    assert [loan["book"] for loan in store.overdue("2024-08-01")] == [ids[1]]


@pytest.fixture
def many(store):
    for title, author in [
        ("100% Wool", "Pat Knit"),
        ("1000 Nights", "Anon"),
        ("snake_case", "Guido"),
        ("snakes", "Nagini"),
        ("emma", "Jane Austen"),
        ("Dune", "Frank Herbert"),
        ("Emma", "A. Nother"),
        ("C:\\Temp", "Bill"),
    ]:
        store.add_book(title, author, 1)
    return store


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("emma", ["emma", "Emma"]),
        ("AUSTEN", ["emma"]),
        ("100", ["100% Wool", "1000 Nights"]),
        ("nothing like it", []),
        ("snake", ["snake_case", "snakes"]),
    ],
)
def test_search(many, text, titles):
    found, total = many.books(text)
    assert [book["title"] for book in found] == titles
    assert total == len(titles)


@pytest.mark.parametrize(
    ("text", "titles"),
    [("100%", ["100% Wool"]), ("%", ["100% Wool"]), ("_", ["snake_case"]), ("e_c", ["snake_case"]), ("\\", ["C:\\Temp"])],
)
def test_search_for_signs(many, text, titles):
    found, total = many.books(text)
    assert [book["title"] for book in found] == titles
    assert total == len(titles)


def test_pages_hold_each_book_once(many):
    seen = []
    for page in (1, 2, 3):
        found, total = many.books(page=page, size=3)
        assert total == 8
        seen += [book["title"] for book in found]
    assert seen == ["100% Wool", "1000 Nights", "C:\\Temp", "Dune", "emma", "Emma", "snake_case", "snakes"]


def test_pages_of_a_search(many):
    assert [book["title"] for book in many.books("snake", page=2, size=1)[0]] == ["snakes"]
    assert many.books("snake", page=3, size=1) == ([], 2)


@pytest.mark.parametrize(("page", "size"), [(0, 10), (-1, 10), (1, 0), (1, 101)])
def test_pages_refused(many, page, size):
    with pytest.raises(BadInput):
        many.books(page=page, size=size)

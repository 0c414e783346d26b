import pytest

from shelf.store import Store


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "shelf.db") as found:
        yield found


def test_lend_and_return(store):
    book = store.add_book("Emma", "Jane Austen", 1)
    (loan,) = store.lend("ann", [book["id"]], "2024-05-01")
    assert store.book(book["id"])["free"] == 0
    store.give_back(loan["id"], "2024-05-08")
    assert store.book(book["id"])["free"] == 1


def test_search(store):
    store.add_book("Emma", "Jane Austen", 1)
    store.add_book("Dracula", "Bram Stoker", 2)
    found, total = store.books("austen")
    assert [book["title"] for book in found] == ["Emma"]
    assert total == 1

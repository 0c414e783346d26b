from larder import Cache, memoize


def test_get_and_set():
    cache = Cache(limit=2)
    cache.set("a", 1)
    assert cache.get("a") == 1
    assert cache.get("b") is None
    assert cache.get("b", 5) == 5


def test_load():
    cache = Cache()
    assert cache.load("a", lambda: 1) == 1
    assert cache.load("a", lambda: 2) == 1


def test_memoize():
    calls = []

    @memoize()
    def square(number):
        calls.append(number)
        return number * number

    assert [square(3), square(3), square(4)] == [9, 9, 16]
    assert calls == [3, 4]

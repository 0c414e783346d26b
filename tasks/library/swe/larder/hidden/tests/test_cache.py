import pytest

from larder import Cache


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def fill(cache, keys):
    for key in keys:
        cache.set(key, key.upper())


def kept(cache, keys):
    return "".join(key for key in keys if key in cache)


def test_the_least_used_goes():
    cache = Cache(limit=3)
    fill(cache, "abcd")
    assert kept(cache, "abcd") == "bcd"


def test_get_is_a_use():
    cache = Cache(limit=3)
    fill(cache, "abc")
    assert cache.get("a") == "A"
    fill(cache, "d")
    assert kept(cache, "abcd") == "acd"


def test_set_again_is_a_use():
    cache = Cache(limit=3)
    fill(cache, "abca")
    fill(cache, "d")
    assert kept(cache, "abcd") == "acd"
    assert len(cache) == 3


def test_in_is_no_use():
    cache = Cache(limit=3)
    fill(cache, "abc")
    assert "a" in cache
    fill(cache, "d")
    assert kept(cache, "abcd") == "bcd"


def test_load_is_a_use():
    cache = Cache(limit=2)
    fill(cache, "ab")
    assert cache.load("a", lambda: "new") == "A"
    fill(cache, "c")
    assert kept(cache, "abc") == "ac"


@pytest.mark.parametrize(("later", "value"), [(0, "A"), (9.9, "A"), (10, None), (11, None)])
def test_ttl(clock, later, value):
    cache = Cache(ttl=10, clock=clock)
    fill(cache, "a")
    clock.now += later
    assert cache.get("a") == value


@pytest.mark.parametrize(("later", "there"), [(9.9, True), (10, False), (50, False)])
def test_an_entry_that_is_over_is_not_there(clock, later, there):
    cache = Cache(ttl=10, clock=clock)
    fill(cache, "a")
    clock.now += later
    assert len(cache) == there
    assert ("a" in cache) is there
    assert cache.delete("a") is there


def test_set_again_begins_a_new_life(clock):
    cache = Cache(ttl=10, clock=clock)
    fill(cache, "a")
    clock.now += 8
    fill(cache, "a")
    clock.now += 8
    assert cache.get("a") == "A"


def test_get_does_not_lengthen_a_life(clock):
    cache = Cache(ttl=10, clock=clock)
    fill(cache, "a")
    clock.now += 8
    assert cache.get("a") == "A"
    clock.now += 2
    assert cache.get("a") is None


def test_what_is_over_goes_first(clock):
    cache = Cache(limit=3, ttl=10, clock=clock)
    fill(cache, "a")
    clock.now += 5
    fill(cache, "bc")
    assert cache.get("a") == "A"
    clock.now += 5
    fill(cache, "d")
    assert kept(cache, "abcd") == "bcd"
    assert cache.stats()["evictions"] == 0


def test_all_that_is_over_goes(clock):
    cache = Cache(limit=3, ttl=10, clock=clock)
    fill(cache, "abc")
    assert [cache.get(key) for key in "abc"] == ["A", "B", "C"]
    clock.now += 10
    fill(cache, "de")
    fill(cache, "f")
    assert kept(cache, "abcdef") == "def"
    assert cache.stats()["evictions"] == 0


def test_stats():
    cache = Cache(limit=1)
    cache.get("a")
    cache.load("a", lambda: 1)
    cache.load("a", lambda: 2)
    cache.get("a")
    cache.set("b", 1)
    assert "a" not in cache
    assert cache.stats() == {"hits": 2, "misses": 2, "evictions": 1}


@pytest.mark.parametrize("options", [{"limit": 0}, {"ttl": 0}, {"ttl": -1}])
def test_refused(options):
    with pytest.raises(ValueError):
        Cache(**options)


def test_none_is_a_value():
    cache = Cache()
    cache.set("a", None)
    assert cache.get("a", 7) is None
    assert cache.load("a", lambda: 8) is None

import threading
import time

import pytest

from larder import Cache

PATIENCE = 10


class Boom(Exception):
    pass


def start(*works):
    """Run each in a thread of its own; returns a function that waits for what they returned or raised."""
    results = [None] * len(works)
    together = threading.Barrier(len(works))

    def run(index):
        try:
            together.wait(PATIENCE)
            results[index] = works[index]()
        except BaseException as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(works))]
    for thread in threads:
        thread.start()

    def wait():
        end = time.monotonic() + PATIENCE
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
        return results

    return wait


def test_made_once():
    cache = Cache()
    calls = []

    def make():
        calls.append(1)
        time.sleep(1.0)
        return len(calls)

    wait = start(*[lambda: cache.load("a", make)] * 8)
    assert wait() == [1] * 8
    assert len(calls) == 1


def test_other_keys_do_not_wait():
    cache = Cache()
    release = threading.Event()
    slow = start(lambda: cache.load("slow", lambda: release.wait(PATIENCE)))
    time.sleep(0.5)
    quick = start(lambda: cache.load("quick", lambda: 1), lambda: cache.get("other"), lambda: cache.set("x", 2))
    try:
        assert quick() == [1, None, None]
    finally:
        release.set()
    assert slow() == [True]


def test_an_error_is_raised():
    cache = Cache()

    def make():
        raise Boom

    with pytest.raises(Boom):
        cache.load("a", make)
    assert "a" not in cache


def test_after_an_error_the_next_call_tries_again():
    cache = Cache()

    def make():
        raise Boom

    with pytest.raises(Boom):
        cache.load("a", make)
    assert start(lambda: cache.load("a", lambda: 5))() == [5]


def test_an_error_reaches_all_who_wait():
    cache = Cache()
    calls = []

    def make():
        calls.append(1)
        time.sleep(1.0)
        raise Boom

    results = start(*[lambda: cache.load("a", make)] * 5)()
    assert [type(result) for result in results] == [Boom] * 5
    assert len(calls) == 1
    assert start(lambda: cache.load("a", lambda: 5))() == [5]


def test_make_may_use_the_cache():
    cache = Cache()

    def make():
        cache.set("b", 1)
        return cache.load("c", lambda: 2)

    assert start(lambda: cache.load("a", make))() == [2]
    assert (cache.get("b"), cache.get("c")) == (1, 2)


def test_many_threads_keep_the_limit():
    cache = Cache(limit=10)

    def work():
        for number in range(300):
            cache.set(number % 37, number)
            cache.get(number % 23)
        return "done"

    assert start(*[work] * 4)() == ["done"] * 4
    assert len(cache) == 10

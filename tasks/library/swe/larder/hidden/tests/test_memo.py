from larder import memoize


def counted(**options):
    calls = []

    @memoize(**options)
    def function(*args, **kwargs):
        calls.append((args, kwargs))
        return len(calls)

    return function, calls


def test_same_call_once():
    function, calls = counted()
    assert [function(1, 2), function(1, 2), function(2, 1)] == [1, 1, 2]


def test_order_of_keywords():
    function, calls = counted()
    assert function(x=1, y=2) == function(y=2, x=1) == 1
    assert function(x=2, y=1) == 2


def test_types_count():
    function, calls = counted()
    assert [function(1), function(1.0), function(True), function(1)] == [1, 2, 3, 1]


def test_types_of_keywords_count():
    function, calls = counted()
    assert [function(x=0), function(x=False), function(x=0.0), function(x=0)] == [1, 2, 3, 1]


def test_keyword_is_no_positional():
    function, calls = counted()
    assert [function(1, ("a", 2)), function(1, a=2), function("a", 2), function(a=2), function()] == [1, 2, 3, 4, 5]
    assert function(1, a=2) == 2


def test_keyword_name_counts():
    function, calls = counted()
    assert [function(a=1), function(b=1), function(a=1)] == [1, 2, 1]


def test_none_is_a_result():
    calls = []

    @memoize()
    def function():
        calls.append(1)

    assert function() is None
    assert function() is None
    assert len(calls) == 1


def test_forget():
    function, calls = counted()
    function(1, x=2)
    assert function.forget(1, x=2) is True
    assert function.forget(1, x=2) is False
    assert function(1, x=2) == 2


def test_limit_and_cache():
    function, calls = counted(limit=2)
    for number in (1, 2, 3):
        function(number)
    assert len(function.cache) == 2
    assert function(1) == 4


def test_each_function_has_its_own():
    first, _ = counted()
    second, _ = counted()
    assert [first(1), second(1), second(2), first(2)] == [1, 1, 2, 2]


def test_name_stays():
    function, _ = counted()
    assert function.__name__ == "function"

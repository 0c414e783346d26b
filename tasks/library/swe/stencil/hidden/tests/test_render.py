import pytest

from stencil import Environment, TemplateError


def render(text, /, **values):
    return Environment({"t": text}).render("t", **values)


class User:
    name = "ann"


def test_parts():
    assert render("{{ a.b.c }}", a={"b": {"c": 3}}) == "3"
    assert render("{{ u.name }}", u=User()) == "ann"
    assert render("{{ a.items }}", a={"items": 5}) == "5"


def test_undefined():
    assert render("[{{ no }}{{ no.more.at.all }}{{ a.no }}]", a=1) == "[]"
    assert render("{% if no %}1{% else %}2{% end %}") == "2"
    assert render("{% for x in no %}1{% else %}2{% end %}") == "2"
    assert render("{{ no | length }}") == "0"


@pytest.mark.parametrize(("a", "b", "shown"), [(1, 1, "a"), (1, 0, "a"), (0, 1, "b"), (0, 0, "c")])
def test_elif(a, b, shown):
    assert render("{% if a %}a{% elif b %}b{% else %}c{% end %}", a=a, b=b) == shown


def test_not():
    assert render("{% if not a %}1{% elif not b %}2{% end %}", a=1, b=0) == "2"


def test_loop():
    text = "{% for x in xs %}{{ loop.index }}{% if loop.first %}f{% end %}{% if loop.last %}l{% end %}{{ x }};{% end %}"
    assert render(text, xs="abc") == "1fa;2b;3lc;"
    assert render(text, xs=["z"]) == "1flz;"


def test_for_else():
    text = "{% for x in xs %}{{ x }}{% else %}none{% end %}"
    assert render(text, xs=[]) == "none"
    assert render(text, xs=[1]) == "1"


def test_a_name_is_as_before_after_a_loop():
    assert render("{{ x }}{% for x in xs %}{{ x }}{% end %}{{ x }}", x="o", xs=[1, 2]) == "o12o"


def test_a_name_is_undefined_after_a_loop():
    assert render("{% for x in xs %}{{ x }}{% end %}[{{ x }}{{ loop.index }}]", xs=[1, 2]) == "12[]"


def test_loop_in_a_loop():
    text = "{% for r in rows %}{% for c in r %}{{ loop.index }}{% end %}-{{ loop.index }}{% if loop.last %}!{% end %} {% end %}"
    assert render(text, rows=["ab", "c"]) == "12-1 1-2! "


def test_same_name_in_a_loop_in_a_loop():
    assert render("{% for x in xs %}{% for x in x %}{{ x }}{% end %}/{{ x }} {% end %}", xs=["ab", "c"]) == "ab/ab c/c "


def test_an_empty_loop_changes_nothing():
    assert render("{% for x in xs %}{% end %}{{ x }}", x="o", xs=[]) == "o"


def test_values_of_the_caller_stay():
    values = {"x": "o", "xs": [1]}
    render("{% for x in xs %}{% end %}", **values)
    assert values == {"x": "o", "xs": [1]}


def test_rendering_twice_is_the_same():
    env = Environment({"t": "{{ x }}{% for x in xs %}{{ x }}{% end %}"})
    assert [env.render("t", xs=[1]), env.render("t", xs=[1])] == ["1", "1"]


def test_include():
    env = Environment({"a": "<{% include 'b' %}>", "b": "{{ x }}"})
    assert env.render("a", x="&") == "<&amp;>"


def test_include_twice():
    env = Environment({"a": "{% include 'b' %}{% include 'b' %}", "b": "{% include 'c' %}", "c": "{{ x }}"})
    assert env.render("a", x=1) == "11"


def test_include_sees_the_loop():
    env = Environment({"a": "{% for x in xs %}{% include 'b' %}{% end %}{% include 'b' %}", "b": "{{ loop.index }}{{ x }};"})
    assert env.render("a", xs="pq") == "1p;2q;;"


@pytest.mark.parametrize(
    ("templates", "where"),
    [
        ({"a": "\n{% include 'a' %}"}, "a:2"),
        ({"a": "{% include 'b' %}", "b": "\n\n{% include 'a' %}"}, "b:3"),
        ({"a": "{% include 'b' %}", "b": "{% include 'c' %}", "c": "{% include 'b' %}"}, "c:1"),
    ],
)
def test_include_of_itself(templates, where):
    with pytest.raises(TemplateError, match=f"^{where}: .*includes itself"):
        Environment(templates).render("a")


def test_a_branch_not_taken_may_include_itself():
    assert Environment({"a": "{% if x %}{% include 'a' %}{% end %}1"}).render("a") == "1"


def test_include_of_nothing():
    with pytest.raises(TemplateError, match="^a:1: there is no template 'b'"):
        Environment({"a": "{% include 'b' %}"}).render("a")


def test_an_error_in_an_included_template_names_it():
    with pytest.raises(TemplateError, match="^b:2: unknown filter"):
        Environment({"a": "{% include 'b' %}", "b": "\n{{ x | no }}"}).render("a")

import pytest

from stencil import Environment, TemplateError


def render(text, **values):
    return Environment({"t": text}).render("t", **values)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a {{ x }} b", "a 1 b"),
        ("a {{- x }} b", "a1 b"),
        ("a {{ x -}} b", "a 1b"),
        ("a \n {{- x -}} \n\n b", "a1b"),
        ("a {# c #} b", "a  b"),
        ("a {#- c -#} b", "ab"),
        ("a {%- if x -%} b {%- end -%} c", "abc"),
        ("{{ x -}}   ", "1"),
        ("   {{- x }}", "1"),
        ("{{ x -}} {{ x }} {{- x }}", "111"),
    ],
)
def test_white_space(text, shown):
    assert render(text, x=1) == shown


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{{ x | bad }}", 1),
        ("a\nb\n{{ x | bad }}", 3),
        ("a\n\n{{ x\n| bad }}", 3),
        ("{# one\ntwo\nthree #}\n{{ x | bad }}", 4),
        ("{{ x\n}}\n{{ x | bad }}", 3),
        ("{% if\nx %}\n{% end %}{{ x | bad }}", 3),
        ("{%- if x -%}\n\n\n{{ x | bad }}{% end %}", 4),
        ("a\n\n  {{- x | bad }}", 3),
        ("{# c -#}\n\n{{ x | bad }}", 3),
    ],
)
def test_line_of_an_error(text, line):
    with pytest.raises(TemplateError, match=f"^t:{line}: unknown filter 'bad'$") as caught:
        render(text, x=1)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("text", "line"), [("a\n{{ x", 2), ("{% if x", 1), ("\n\n{# c", 3), ("{% if x %}\n{# a\nb #}{% end", 3)]
)
def test_never_closed(text, line):
    with pytest.raises(TemplateError, match=f"^t:{line}: .*never closed"):
        render(text, x=1)


@pytest.mark.parametrize(
    "text",
    ["{% end %}", "{% else %}", "{% if x %}", "{% for a in b %}", "{% for a b %}{% end %}", "{% what %}", "{{ }}", "{{ 'a }}",
     "{{ a. }}", "{{ a b }}", "{{ a | upper( }}", "{% if a %}{% else %}{% else %}{% end %}"],
)
def test_refused(text):
    with pytest.raises(TemplateError, match="^t:1: "):
        render(text)

import pytest

from stencil import Environment, TemplateError


def render(text, **values):
    return Environment({"t": text}).render("t", **values)


def test_print():
    assert render("Hello {{ name }}!", name="<Ann>") == "Hello &lt;Ann&gt;!"


def test_if():
    assert render("{% if a %}1{% else %}2{% end %}", a=True) == "1"
    assert render("{% if a %}1{% else %}2{% end %}") == "2"


def test_for():
    assert render("{% for n in ns %}{{ n }},{% end %}", ns=[1, 2]) == "1,2,"


def test_error():
    with pytest.raises(TemplateError, match="t:1: unknown filter 'uper'"):
        render("{{ name | uper }}", name="x")

import pytest

from stencil import Environment, Safe


def render(text, **values):
    return Environment({"t": text}).render("t", **values)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("<b>", "&lt;b&gt;"),
        ("a & b", "a &amp; b"),
        ('"x"', "&#34;x&#34;"),
        ("it's", "it&#39;s"),
        (7, "7"),
        (None, "None"),
        (["<"], "[&#39;&lt;&#39;]"),
        (Safe("<b>"), "<b>"),
    ],
)
def test_print(value, shown):
    assert render("{{ x }}", x=value) == shown


def test_text_of_the_template_stays():
    assert render("<b>&{{ x }}</b>", x="<") == "<b>&&lt;</b>"


def test_safe():
    assert render("{{ x | safe }}", x="<b>") == "<b>"


@pytest.mark.parametrize("name", ["upper", "lower", "trim"])
def test_a_filter_that_returns_plain_text_is_escaped(name):
    assert "<" not in render("{{ x | " + name + " }}", x="<i>")
    assert "<" not in render("{{ x | safe | " + name + " }}", x="<i>")


def test_join_of_plain_texts():
    assert render("{{ x | join(', ') }}", x=["<", "b"]) == "&lt;, b"
    assert render("{{ x | join('<') }}", x=["a", "b"]) == "a&lt;b"


def test_join_escapes_what_is_not_safe():
    assert render("{{ x | join(' ') }}", x=[Safe("<b>"), "<i>"]) == "<b> &lt;i&gt;"
    assert render("{{ x | join('<') }}", x=[Safe("<b>"), "c"]) == "<b>&lt;c"


def test_join_with_a_safe_text():
    assert render("{{ x | join(y) }}", x=["<i>", "b"], y=Safe("<br>")) == "&lt;i&gt;<br>b"


def test_join_of_safe_texts():
    assert render("{{ x | join(y) }}", x=[Safe("<a>"), Safe("<b>")], y=Safe("<br>")) == "<a><br><b>"


def test_replace_of_plain_text():
    assert render("{{ x | replace('a', '<') }}", x="cat") == "c&lt;t"


def test_replace_in_safe_text():
    assert render("{{ x | replace('a', '<i>') }}", x=Safe("<b>a</b>")) == "<b>&lt;i&gt;</b>"
    assert render("{{ x | replace('a', y) }}", x=Safe("<b>a</b>"), y=Safe("<i>")) == "<b><i></b>"


def test_default_keeps_what_is_safe():
    assert render("{{ x | default('<') }}{{ y | default('-') }}", y=Safe("<b>")) == "&lt;<b>"

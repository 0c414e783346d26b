import pytest

from seam import Conflict, apply, diff, parse

OLD = "one\ntwo\nthree\n"
NEW = "one\n2\nthree\n"
PATCH = """\
--- a.txt
+++ b.txt
@@ -1,3 +1,3 @@
 one
-two
+2
 three
"""


def test_diff():
    assert diff(OLD, NEW, "a.txt", "b.txt") == PATCH


def test_apply():
    assert apply(OLD, parse(PATCH)) == NEW


def test_conflict():
    with pytest.raises(Conflict):
        apply("something else\n", parse(PATCH))

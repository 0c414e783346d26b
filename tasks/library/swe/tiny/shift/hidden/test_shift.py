import unittest

from shift import encode, shift


class TestShift(unittest.TestCase):
    def test_one(self):
        self.assertEqual(shift("a", 1), "b")

    def test_many(self):
        self.assertEqual(shift("c", 10), "m")

    def test_past_z(self):
        self.assertEqual(shift("z", 1), "a")
        self.assertEqual(shift("y", 3), "b")

    def test_back(self):
        self.assertEqual(shift("b", -1), "a")
        self.assertEqual(shift("a", -1), "z")

    def test_none(self):
        self.assertEqual(shift("z", 0), "z")

    def test_encode(self):
        self.assertEqual(encode("abc", 2), "cde")
        self.assertEqual(encode("xyz", 3), "abc")

    def test_encode_nothing(self):
        self.assertEqual(encode("", 5), "")

import unittest

from vowels import count_vowels, has_vowel


class TestVowels(unittest.TestCase):
    def test_small(self):
        self.assertEqual(count_vowels("banana"), 3)

    def test_big(self):
        self.assertEqual(count_vowels("Apple"), 2)
        self.assertEqual(count_vowels("OIL"), 2)

    def test_all_five(self):
        self.assertEqual(count_vowels("education"), 5)
        self.assertEqual(count_vowels("music"), 2)

    def test_none(self):
        self.assertEqual(count_vowels("sky"), 0)
        self.assertEqual(count_vowels(""), 0)

    def test_has_one(self):
        self.assertEqual(has_vowel("cat"), True)

    def test_has_many(self):
        self.assertEqual(has_vowel("queue"), True)

    def test_has_none(self):
        self.assertEqual(has_vowel("sky"), False)

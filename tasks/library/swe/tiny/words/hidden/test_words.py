import unittest

from words import count_words, longest


class TestWords(unittest.TestCase):
    def test_count(self):
        self.assertEqual(count_words("a big dog"), 3)
        self.assertEqual(count_words("hi"), 1)

    def test_count_blanks(self):
        self.assertEqual(count_words(" a  b "), 2)

    def test_count_nothing(self):
        self.assertEqual(count_words(""), 0)

    def test_longest_last(self):
        self.assertEqual(longest("a big horse"), "horse")

    def test_longest_middle(self):
        self.assertEqual(longest("a horse ran"), "horse")

    def test_longest_tie(self):
        self.assertEqual(longest("cat dog"), "cat")

    def test_longest_of_nothing(self):
        self.assertEqual(longest(""), "")

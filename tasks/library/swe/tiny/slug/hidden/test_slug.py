import unittest

from slug import initials, slug


class TestSlug(unittest.TestCase):
    def test_plain(self):
        self.assertEqual(slug("big dog"), "big-dog")

    def test_lower(self):
        self.assertEqual(slug("Big Dog"), "big-dog")

    def test_trimmed(self):
        self.assertEqual(slug(" big dog "), "big-dog")

    def test_one_word(self):
        self.assertEqual(slug("Cat"), "cat")

    def test_initials(self):
        self.assertEqual(initials("Ada King"), "AK")

    def test_initials_small(self):
        self.assertEqual(initials("ada king"), "AK")

    def test_initials_three(self):
        self.assertEqual(initials("mia lou ray"), "MLR")

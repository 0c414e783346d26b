import unittest

from median import median


class TestMedian(unittest.TestCase):
    def test_odd(self):
        self.assertEqual(median([1, 5, 9]), 5)

    def test_odd_unsorted(self):
        self.assertEqual(median([9, 1, 5]), 5)

    def test_five(self):
        self.assertEqual(median([1, 2, 3, 4, 5]), 3)

    def test_even(self):
        self.assertEqual(median([1, 2, 3, 4]), 2.5)

    def test_two(self):
        self.assertEqual(median([8, 4]), 6.0)

    def test_one(self):
        self.assertEqual(median([7]), 7)

import unittest

from evens import sum_evens, top_odd


class TestEvens(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(sum_evens([1, 2, 3, 4]), 6)

    def test_sum_negative(self):
        self.assertEqual(sum_evens([-2, 8, 5]), 6)

    def test_sum_none(self):
        self.assertEqual(sum_evens([1, 3]), 0)
        self.assertEqual(sum_evens([]), 0)

    def test_sum_multiples(self):
        self.assertEqual(sum_evens([3, 6, 9]), 6)

    def test_top(self):
        self.assertEqual(top_odd([3, 8, 5]), 5)

    def test_top_first(self):
        self.assertEqual(top_odd([7, 1, 2]), 7)

    def test_top_none(self):
        self.assertEqual(top_odd([2, 4]), None)

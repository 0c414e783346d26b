import unittest

from pairs import pair_sums, top_step


class TestPairs(unittest.TestCase):
    def test_sums(self):
        self.assertEqual(pair_sums([1, 2, 3]), [3, 5])

    def test_sums_of_two(self):
        self.assertEqual(pair_sums([4, 6]), [10])

    def test_sums_of_one(self):
        self.assertEqual(pair_sums([7]), [])

    def test_sums_negative(self):
        self.assertEqual(pair_sums([-1, 5, -2]), [4, 3])

    def test_step(self):
        self.assertEqual(top_step([1, 2, 6]), 4)

    def test_step_down(self):
        self.assertEqual(top_step([9, 7, 4]), -2)

    def test_step_first(self):
        self.assertEqual(top_step([0, 5, 6]), 5)

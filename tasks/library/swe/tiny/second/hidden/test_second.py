import unittest

from second import second


class TestSecond(unittest.TestCase):
    def test_three(self):
        self.assertEqual(second([3, 9, 5]), 5)

    def test_two(self):
        self.assertEqual(second([4, 9]), 4)

    def test_equal(self):
        self.assertEqual(second([9, 9, 4]), 4)

    def test_one(self):
        self.assertEqual(second([9]), None)
        self.assertEqual(second([9, 9]), None)

    def test_none(self):
        self.assertEqual(second([]), None)

    def test_negative(self):
        self.assertEqual(second([-5, -1, -3]), -3)

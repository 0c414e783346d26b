import unittest

from clamp import clamp


class TestClamp(unittest.TestCase):
    def test_inside(self):
        self.assertEqual(clamp(4, 0, 10), 4)

    def test_below(self):
        self.assertEqual(clamp(-3, 0, 10), 0)

    def test_above(self):
        self.assertEqual(clamp(15, 0, 10), 10)

    def test_negative_range(self):
        self.assertEqual(clamp(-7, -5, -2), -5)
        self.assertEqual(clamp(0, -5, -2), -2)

    def test_bounds(self):
        self.assertEqual(clamp(0, 0, 10), 0)
        self.assertEqual(clamp(10, 0, 10), 10)

    def test_float(self):
        self.assertEqual(clamp(2.5, 0.0, 2.0), 2.0)

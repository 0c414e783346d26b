import unittest

from dist import distance, nearest


class TestDist(unittest.TestCase):
    def test_forward(self):
        self.assertEqual(distance((1, 1), (4, 5)), 7)

    def test_backward(self):
        self.assertEqual(distance((4, 5), (1, 1)), 7)

    def test_only_x(self):
        self.assertEqual(distance((0, 2), (3, 2)), 3)

    def test_only_y(self):
        self.assertEqual(distance((2, 0), (2, 6)), 6)

    def test_same(self):
        self.assertEqual(distance((2, 3), (2, 3)), 0)

    def test_nearest(self):
        self.assertEqual(nearest((0, 0), [(5, 5), (1, 2)]), (1, 2))

    def test_nearest_first(self):
        self.assertEqual(nearest((4, 4), [(5, 5), (0, 0)]), (5, 5))

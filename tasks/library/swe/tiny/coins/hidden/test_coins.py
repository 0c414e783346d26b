import unittest

from coins import coins


class TestCoins(unittest.TestCase):
    def test_nothing(self):
        self.assertEqual(coins(0), 0)

    def test_ones(self):
        self.assertEqual(coins(4), 4)

    def test_each(self):
        self.assertEqual(coins(25), 1)
        self.assertEqual(coins(10), 1)
        self.assertEqual(coins(5), 1)
        self.assertEqual(coins(1), 1)

    def test_mixed(self):
        self.assertEqual(coins(41), 4)

    def test_many(self):
        self.assertEqual(coins(99), 9)

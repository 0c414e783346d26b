import unittest

from prices import discount, total


class TestPrices(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([10, 20], 0.5), 45.0)

    def test_total_without_tax(self):
        self.assertEqual(total([3, 4, 5], 0), 12)

    def test_total_of_nothing(self):
        self.assertEqual(total([], 0.25), 0.0)

    def test_discount(self):
        self.assertEqual(discount(80, 25), 60.0)
        self.assertEqual(discount(50, 10), 45.0)

    def test_no_discount(self):
        self.assertEqual(discount(80, 0), 80.0)

    def test_all_off(self):
        self.assertEqual(discount(80, 100), 0.0)

    def test_more_than_all(self):
        self.assertEqual(discount(80, 150), 0)

import unittest

from stock import can_buy, left, sold_out


class TestStock(unittest.TestCase):
    def test_left(self):
        self.assertEqual(left({"tea": 3}, "tea"), 3)

    def test_left_unknown(self):
        self.assertEqual(left({"tea": 3}, "milk"), 0)

    def test_buy_some(self):
        self.assertEqual(can_buy({"tea": 5}, "tea", 3), True)

    def test_buy_all(self):
        self.assertEqual(can_buy({"tea": 3}, "tea", 3), True)

    def test_buy_too_many(self):
        self.assertEqual(can_buy({"tea": 3}, "tea", 4), False)

    def test_sold_out(self):
        self.assertEqual(sold_out({"tea": 1, "milk": 0}), ["milk"])

    def test_sold_out_sorted(self):
        self.assertEqual(sold_out({"tea": 0, "jam": 0}), ["jam", "tea"])

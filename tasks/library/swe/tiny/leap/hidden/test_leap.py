import unittest

from leap import days, is_leap


class TestLeap(unittest.TestCase):
    def test_every_fourth_year(self):
        self.assertEqual(is_leap(2024), True)
        self.assertEqual(is_leap(1996), True)

    def test_common_year(self):
        self.assertEqual(is_leap(2023), False)
        self.assertEqual(is_leap(2022), False)

    def test_century(self):
        self.assertEqual(is_leap(1900), False)
        self.assertEqual(is_leap(2100), False)

    def test_fourth_century(self):
        self.assertEqual(is_leap(2000), True)
        self.assertEqual(is_leap(2400), True)

    def test_decade(self):
        self.assertEqual(is_leap(1980), True)
        self.assertEqual(is_leap(1990), False)

    def test_days(self):
        self.assertEqual(days(2024), 366)
        self.assertEqual(days(2023), 365)

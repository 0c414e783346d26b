import unittest

from clock import minutes, show


class TestClock(unittest.TestCase):
    def test_minutes(self):
        self.assertEqual(minutes(2, 5), 125)

    def test_minutes_only(self):
        self.assertEqual(minutes(0, 45), 45)

    def test_hours_only(self):
        self.assertEqual(minutes(3, 0), 180)

    def test_show(self):
        self.assertEqual(show(125), "2:05")
        self.assertEqual(show(754), "12:34")

    def test_show_short(self):
        self.assertEqual(show(59), "0:59")

    def test_show_full_hour(self):
        self.assertEqual(show(60), "1:00")

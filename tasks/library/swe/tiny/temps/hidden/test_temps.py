import unittest

from temps import feels, to_c, to_f


class TestTemps(unittest.TestCase):
    def test_to_f(self):
        self.assertEqual(to_f(100), 212.0)
        self.assertEqual(to_f(0), 32.0)

    def test_to_f_below_zero(self):
        self.assertEqual(to_f(-40), -40.0)

    def test_to_c(self):
        self.assertEqual(to_c(212), 100.0)
        self.assertEqual(to_c(32), 0.0)

    def test_cold(self):
        self.assertEqual(feels(3), "cold")
        self.assertEqual(feels(-5), "cold")

    def test_mild(self):
        self.assertEqual(feels(10), "mild")
        self.assertEqual(feels(22), "mild")
        self.assertEqual(feels(25), "mild")

    def test_hot(self):
        self.assertEqual(feels(30), "hot")

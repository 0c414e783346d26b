import unittest

from grades import grade, passed


class TestGrades(unittest.TestCase):
    def test_a(self):
        self.assertEqual(grade(95), "A")
        self.assertEqual(grade(90), "A")

    def test_b(self):
        self.assertEqual(grade(80), "B")
        self.assertEqual(grade(75), "B")
        self.assertEqual(grade(89), "B")

    def test_c(self):
        self.assertEqual(grade(65), "C")
        self.assertEqual(grade(60), "C")
        self.assertEqual(grade(74), "C")

    def test_f(self):
        self.assertEqual(grade(40), "F")
        self.assertEqual(grade(59), "F")

    def test_passed(self):
        self.assertEqual(passed(70), True)
        self.assertEqual(passed(60), True)

    def test_failed(self):
        self.assertEqual(passed(30), False)

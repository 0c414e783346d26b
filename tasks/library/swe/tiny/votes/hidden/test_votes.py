import unittest

from votes import count, winner


class TestVotes(unittest.TestCase):
    def test_one(self):
        self.assertEqual(count(["bo"]), {"bo": 1})

    def test_same(self):
        self.assertEqual(count(["bo", "bo"]), {"bo": 2})

    def test_different(self):
        self.assertEqual(count(["bo", "eve"]), {"bo": 1, "eve": 1})

    def test_no_votes(self):
        self.assertEqual(count([]), {})

    def test_winner(self):
        self.assertEqual(winner(["bo", "bo", "eve"]), "bo")

    def test_winner_later(self):
        self.assertEqual(winner(["bo", "eve", "eve"]), "eve")

import unittest

from primes import is_prime, primes


class TestPrimes(unittest.TestCase):
    def test_two(self):
        self.assertEqual(is_prime(2), True)

    def test_odd_primes(self):
        self.assertEqual(is_prime(7), True)
        self.assertEqual(is_prime(13), True)

    def test_even(self):
        self.assertEqual(is_prime(4), False)
        self.assertEqual(is_prime(10), False)

    def test_odd_product(self):
        self.assertEqual(is_prime(9), False)
        self.assertEqual(is_prime(35), False)

    def test_too_small(self):
        self.assertEqual(is_prime(1), False)
        self.assertEqual(is_prime(0), False)
        self.assertEqual(is_prime(-3), False)

    def test_primes(self):
        self.assertEqual(primes(10), [2, 3, 5, 7])

    def test_primes_with_limit(self):
        self.assertEqual(primes(7), [2, 3, 5, 7])
        self.assertEqual(primes(1), [])

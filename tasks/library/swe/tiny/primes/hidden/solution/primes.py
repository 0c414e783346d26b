def is_prime(n):
    if n < 2:
        return False
    for d in range(2, n):
        if n % d == 0:
            return False
    return True


def primes(limit):
    return [n for n in range(limit + 1) if is_prime(n)]

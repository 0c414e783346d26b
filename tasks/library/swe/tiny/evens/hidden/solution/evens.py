def sum_evens(nums):
    total = 0
    for n in nums:
        if n % 2 == 0:
            total += n
    return total


def top_odd(nums):
    odds = [n for n in nums if n % 2 == 1]
    return max(odds, default=None)

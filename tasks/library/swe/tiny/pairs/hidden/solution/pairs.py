def pair_sums(nums):
    sums = []
    for i in range(len(nums) - 1):
        sums.append(nums[i] + nums[i + 1])
    return sums


def top_step(nums):
    steps = [b - a for a, b in zip(nums, nums[1:])]
    return max(steps)

def median(nums):
    nums = sorted(nums)
    half = len(nums) // 2
    if len(nums) % 2 == 1:
        return nums[half]
    return (nums[half - 1] + nums[half]) / 2

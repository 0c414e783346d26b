def second(nums):
    nums = sorted(set(nums), reverse=True)
    if len(nums) < 2:
        return None
    return nums[1]

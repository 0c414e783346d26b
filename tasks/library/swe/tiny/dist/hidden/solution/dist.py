def distance(a, b):
    dx = abs(a[0] - b[0])
    dy = abs(a[1] - b[1])
    return dx + dy


def nearest(point, others):
    return min(others, key=lambda o: distance(point, o))

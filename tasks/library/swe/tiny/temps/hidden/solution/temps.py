def to_f(c):
    return c * 9 / 5 + 32


def to_c(f):
    return (f - 32) * 5 / 9


def feels(c):
    if c < 10:
        return "cold"
    return "hot" if c > 25 else "mild"

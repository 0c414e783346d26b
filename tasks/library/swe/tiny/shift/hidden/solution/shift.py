def shift(letter, by):
    code = ord(letter) - ord("a") + by
    return chr(code % 26 + 97)


def encode(text, by):
    return "".join(shift(c, by) for c in text)

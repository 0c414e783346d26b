def count_words(text):
    return len(text.split())


def longest(text):
    best = ""
    for word in text.split():
        if len(word) > len(best):
            best = word
    return best

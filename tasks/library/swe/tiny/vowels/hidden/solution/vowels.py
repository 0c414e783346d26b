def count_vowels(text):
    total = 0
    for letter in text.lower():
        if letter in "aeiou":
            total += 1
    return total


def has_vowel(text):
    return count_vowels(text) > 0

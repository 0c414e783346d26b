def count(votes):
    tally = {}
    for name in votes:
        tally[name] = tally.get(name, 0) + 1
    return tally


def winner(votes):
    tally = count(votes)
    return max(tally, key=tally.get)

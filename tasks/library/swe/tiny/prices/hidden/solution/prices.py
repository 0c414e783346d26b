def total(prices, tax):
    amount = sum(prices)
    return amount + amount * tax


def discount(price, percent):
    if percent > 100:
        return 0
    return price - price * percent / 100

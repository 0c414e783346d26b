def left(stock, name):
    return stock.get(name, 0)


def can_buy(stock, name, amount):
    return left(stock, name) >= amount


def sold_out(stock):
    return sorted(n for n in stock if stock[n] == 0)

def slug(title):
    title = title.strip().lower()
    return title.replace(" ", "-")


def initials(name):
    parts = name.split()
    return "".join(p[0].upper() for p in parts)

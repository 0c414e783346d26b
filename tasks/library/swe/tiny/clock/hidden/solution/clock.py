def minutes(hours, mins):
    return hours * 60 + mins


def show(total):
    hours = total // 60
    mins = total % 60
    return f"{hours}:{mins:02d}"

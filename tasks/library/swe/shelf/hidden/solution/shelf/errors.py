"""What can go wrong, each with its HTTP status."""


class ShelfError(Exception):
    status = 500


class BadInput(ShelfError):
    status = 400


class NotFound(ShelfError):
    status = 404


class Conflict(ShelfError):
    status = 409

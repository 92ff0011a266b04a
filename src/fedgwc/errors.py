"""The error a user's mistake raises: it says what came, what is allowed and what to do."""


class InputError(ValueError):
    """Something given to fedgwc (an argument, a recipe, a file) cannot be used; the message says why and what to do."""


class NotHere(InputError):  # noqa: N818 - another machine may well have it
    """A file that a recipe names, data or a model's weights, is not on this machine."""

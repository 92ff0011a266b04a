"""The error a user's mistake raises: it says what came, what is allowed and what to do."""


class InputError(ValueError):
    """Something given to fedgwc (an argument, a recipe, a file) cannot be used; the message says why and what to do."""


class NotHere(InputError):  # noqa: N818 - another machine may well have it
    """A file that a recipe names, data or a model's weights, is not on this machine."""


def in_words(error: OSError) -> str:
    """What the system refused, without its number."""
    what = error.strerror or str(error)
    return f"{error.filename}: {what}" if error.filename else what

"""Errors that a user's mistake raises.

A message says what came, what is allowed and what to do.
"""


class InputError(ValueError):
    """An argument, a recipe or a file that cannot be used.

    The message says why, and what to do.
    """


class NotHere(InputError):  # noqa: N818 - another machine may well have it
    """A file of a recipe that is not on this machine.

    For example a data set or a model's weights.
    """


def os_error_text(error: OSError) -> str:
    """Return a system error's text without its number."""
    what = error.strerror or str(error)
    return f"{error.filename}: {what}" if error.filename else what

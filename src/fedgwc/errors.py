"""The one error a user's mistake raises: it says what came, what is allowed and what to do."""


class InputError(ValueError):
    """Something given to fedgwc (an argument, a recipe, a file) cannot be used; the message says why and what to do."""

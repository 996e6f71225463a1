"""Errors about the user's input: the command line prints them as one sentence and exits with 2.

Every one is a `DarnError`. Some are also of the built-in class that Python code catches for that kind of mistake.
"""


class DarnError(Exception):
    """Says in one sentence what is wrong with the input and what to do about it."""


class InputError(DarnError, ValueError):
    """A value that is not possible: a parameter out of range, rows that are not of 0 and 1."""


class InputTypeError(DarnError, TypeError):
    """An object of a kind that cannot be used here."""


class FormatError(DarnError, ValueError):
    """A file that is damaged, cut short, or not of the format it should be."""


class NotFoundError(DarnError, FileNotFoundError):
    """A file, folder or name that does not exist."""

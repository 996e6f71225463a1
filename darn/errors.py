"""Errors about the user's input: the command line prints their one sentence and exits with status 2.

All of them are `DarnError`. Some are also built-in exceptions that Python code catches for that kind of mistake.
"""

LONGEST = 1000  # characters of a message


class DarnError(Exception):
    """Bad input; the message says in one sentence what is wrong and what to do about it.

    A message may quote a file. It is one line of at most `LONGEST` characters, and its control characters are written
    out.
    """

    def __str__(self) -> str:
        text = printable(super().__str__())
        return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."


class InputError(DarnError, ValueError):
    """An invalid value, such as a parameter out of range or rows that are not 0 and 1."""


class InputTypeError(DarnError, TypeError):
    """An object of a type that cannot be used here."""


class FormatError(DarnError, ValueError):
    """A file that is damaged, truncated, or in the wrong format."""


class NotFoundError(DarnError, FileNotFoundError):
    """A file, folder or name that does not exist."""


def printable(text: str) -> str:
    """The text with its control characters written out, so that a terminal shows them instead of obeying them.

    Args:
        text: may quote a file, such as the name of a column.

    Returns:
        One line; an escape character, for example, is the four characters \\x1b.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)

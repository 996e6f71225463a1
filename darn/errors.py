"""The one exception that is the user's to mend: the command line prints it as a sentence and exits with 2."""


class DarnError(Exception):
    """Says in one sentence what is wrong with the input and what to do about it."""

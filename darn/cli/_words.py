"""Rewords messages for a command, so that they name only options that it has."""

import re
from collections.abc import Mapping, Set

from darn.errors import DarnError
from darn.jsonable import FieldError

_OPTION = re.compile(r"(?<![\w-])--([a-z][\w-]*)")
_ARGUMENT = re.compile(r"(?<![\w-])([a-z]\w*) = ")  # of a Python call: drop = 'name'


def reworded(error: DarnError, command: str | None, options: Mapping[str, Set[str]]) -> str:
    """The error's message for the user of one command.

    Args:
        error: Raised by a function that does not know of commands.
        command: The command that was given, or None.
        options: Every command's options, such as "--lr".

    Returns:
        The message. Fields and arguments that it names have dashes where they are options of the command; options of
        other commands have none, and the message says whose they are.
    """
    here = options.get(command or "", frozenset())
    text = str(error)
    for name in error.fields if isinstance(error, FieldError) else ():
        if f"--{name}" in here:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?!\w)", f"--{name}", text, count=1)
    foreign: list[str] = []

    def bare(found: re.Match) -> str:
        if found[0] in here:
            return found[0]
        foreign.append(found[1])
        return found[1]

    def dashed(argument: re.Match) -> str:
        if f"--{argument[1]}" in here:
            return f"--{argument[1]} "
        foreign.append(argument[1])
        return argument[0]

    # Text in backquotes is another command to type, and is kept.
    pieces = text.split("`")
    pieces[::2] = [_ARGUMENT.sub(dashed, _OPTION.sub(bare, part)) for part in pieces[::2]]
    text = "`".join(pieces)
    for name in dict.fromkeys(foreign):
        # most are fields of a recipe, which are set in training
        owner = next((c for c in ("train", *options) if f"--{name}" in options[c]), None)
        if owner:
            text += f"; {name} is an option of `darn {owner}`"
    return text

"""Recipe fields as text: how the command line writes and reads them."""

import csv
import dataclasses
import io
import itertools
import typing
from collections.abc import Sequence
from typing import Any

from darn.config import LocalLayer, Start, Window
from darn.jsonable import FieldError, optional
from darn.runs.recipe import PARTS, part_of
from darn.runs.values import check_values

_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def fields_of(part: str | None = None) -> list[dataclasses.Field]:
    """The fields that the command line offers: all but the data's source, which is a command's first argument.

    Args:
        part: "architecture", "training" or "data"; None for all three.
    """
    parts = [PARTS[part]] if part else PARTS.values()
    return [f for kind in parts for f in dataclasses.fields(kind) if f.name != "source"]


def placeholder(f: dataclasses.Field) -> str:
    """What stands for a field's value in help, by its type."""
    kind = optional(f.type)[0]
    if typing.get_origin(kind) is tuple:
        kind = tuple[typing.get_args(kind)[0]]
    names = {bool: "BOOL", int: "INT", float: "FLOAT", tuple[int]: "UNITS", tuple[str]: "NAME=KIND"}
    names |= {Window: "KERNEL/PERIOD", Start: "ROWS/COLUMNS/LEFT"}
    return names.get(kind, "KERNEL/STRIDE/FILTERS,..." if kind == tuple[LocalLayer] else "NAME")


def parse_field(name: str, text: str) -> Any:
    """The value of a field from its text: the inverse of `show_field`.

    Args:
        name: A field's name.
        text: Such as "500", "80x12" or "200,100" for units, "8/4/32,4/2/32" for local layers, "" for none of them.

    Returns:
        The value, within the field's range and choices.

    Raises:
        FieldError: There is no such field, or the text is not of its type.
    """
    part = PARTS[part_of(name)]
    f = next(f for f in dataclasses.fields(part) if f.name == name)
    if f not in fields_of():
        raise FieldError(f"there is no field {name}", name)
    kind, may_be_none = optional(f.type)
    if may_be_none and text.lower() == "none":
        return None
    try:
        value = _READERS[kind](text)
    except (ValueError, KeyError, TypeError):
        raise FieldError(f"{name} takes {_EXPECTED[kind]}, not {text!r}", name) from None
    check_values(part(**{name: value}))
    return value


def show_field(value: Any) -> str:
    """A field's value as text: the inverse of `parse_field`."""
    if isinstance(value, tuple) and value and isinstance(value[0], str):
        return join_texts(value)
    if isinstance(value, tuple):
        return ",".join(map(show_field, value)) or "''"
    if isinstance(value, LocalLayer | Window | Start):
        return "/".join(map(str, dataclasses.astuple(value)))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def join_texts(texts: Sequence[str]) -> str:
    """Several texts as one, as in CSV: a text with a comma or a line break is in quotes."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow(texts)
    return out.getvalue().removesuffix("\r\n")


def _texts(text: str) -> tuple[str, ...]:
    return tuple(itertools.chain.from_iterable(csv.reader(io.StringIO(text, newline=""))))


def _words(text: str) -> list[str]:
    return [word for word in text.replace(" ", "").split(",") if word]


def _units(text: str) -> tuple[int, ...]:
    out: list[int] = []
    for word in _words(text):
        size, x, times = word.partition("x")
        n, repeats = int(size), int(times if x else 1)
        if not 1 <= repeats <= 10_000 or n < 1:
            raise ValueError(text)
        out += [n] * repeats
    return tuple(out)


def _local_layers(text: str) -> tuple[LocalLayer, ...]:
    return tuple(LocalLayer(*_numbers(word, 3)) for word in _words(text))


def _window(text: str) -> Window:
    return Window(*_numbers(text, 2))


def _start(text: str) -> Start:
    return Start(*_numbers(text, 3))


def _numbers(text: str, count: int) -> list[int]:
    """`count` whole numbers with slashes between them."""
    numbers = [int(word) for word in text.split("/")]
    if len(numbers) != count:
        raise ValueError(text)
    return numbers


def _bool(text: str) -> bool:
    return _TRUTH[text.lower()]


_READERS: dict[Any, Any] = {
    bool: _bool,
    int: int,
    float: float,
    str: str,
    tuple[str, ...]: _texts,
    tuple[int, ...]: _units,
    tuple[LocalLayer, ...]: _local_layers,
    Window: _window,
    Start: _start,
}
_EXPECTED: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    tuple[int, ...]: "unit counts such as 500, 200,100 or 80x12",
    tuple[LocalLayer, ...]: "kernel/stride/filters of each layer, such as 8/4/32,4/2/32",
    Window: "an odd kernel and a period, such as 15/14",
    Start: "rows, an odd number of columns and cells to the left, such as 2/7/3",
}

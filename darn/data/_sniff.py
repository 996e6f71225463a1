"""Parses the lines of a text table into cells, and detects its delimiter, its quotes and its header.

Uses the standard library's parser, which keeps text as written and knows the line of every row. polars fills short rows
with nulls, turns blank lines into rows, and takes ten times as long to import.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from darn.data._layout import BLANKS
from darn.data._limits import MAX_FIELDS
from darn.errors import DarnError

# In this order if several are possible: a comma may be a decimal sign or part of a text, a semicolon rarely.
DELIMITERS = (";", "\t", ",", "|")
csv.field_size_limit(LONGEST := 1 << 22)  # characters of a cell; beyond, a quote is probably not closed
LINES, CHARACTERS = 1000, 1 << 18  # how much of a file is read to detect its delimiter


class UnclosedError(DarnError):
    """A quote is still open at the end of the text."""


def sniff(sample: list[str]) -> str:
    """The delimiter that gives most lines the same number of cells, more than one."""
    found = {d: agreement(sample, d, False) for d in DELIMITERS}
    fraction, delimiter = max(
        ((fraction, d) for d, (fraction, width) in found.items() if width > 1),
        key=lambda pair: pair[0],  # ties go to the first in DELIMITERS
        default=(0.0, ","),
    )
    if fraction:
        return delimiter
    fraction, width = agreement(sample, BLANKS, False)
    numeric = all(is_number(word) for line in sample if not line.startswith("#") for word in line.split())
    return BLANKS if width > 1 and (fraction == 1 or numeric) else ","


def is_number(word: str) -> bool:
    """Whether the text is a number, 'nan' and 'inf' included."""
    try:
        float(word)
    except ValueError:
        return False
    return "_" not in word


def agreement(sample: list[str], delimiter: str, after_blank: bool) -> tuple[float, int]:
    """Returns (fraction of the sampled rows with the most common number of cells, that number)."""
    try:
        rows = [cells for _, _, cells in parse(sample, delimiter, after_blank, "", strict=False)]
    except DarnError:
        return 0.0, 0
    widths = Counter(len(cells) for cells in rows if cells and not cells[0].startswith("#"))
    if not widths:
        return 0.0, 1
    width, count = widths.most_common(1)[0]
    return count / widths.total(), width


def quotes_follow_blanks(sample: list[str], delimiter: str, what: str) -> bool:
    """Whether cells are written as in `a, "b"`; inside quotes, a delimiter and a blank are just text."""
    return any(
        cell.startswith(' "') and delimiter + cell in "".join(sample[start:stop])
        for start, stop, cells in parse(sample, delimiter, False, what, strict=False)
        for cell in cells[1:]
    )


def sample_of(lines: list[str]) -> list[str]:
    """The first lines, enough to detect a delimiter."""
    size, sample = 0, []
    for line in lines[:LINES]:
        sample.append(line)
        size += len(line)
        if size > CHARACTERS:
            break
    return sample


def parse(
    lines: list[str],
    delimiter: str,
    after_blank: bool,
    what: str,
    *,
    first: int = 0,
    before: int = 0,
    strict: bool = True,
) -> Iterator[tuple[int, int, list[str]]]:
    """Yields (first line, line after the last, cells) of every record, with lines counted from 0."""
    given = islice(lines, first, None)
    if delimiter == BLANKS:
        given = (line.strip() for line in given)
    reader = csv.reader(given, delimiter=delimiter, skipinitialspace=after_blank or delimiter == BLANKS, strict=strict)
    start = first
    try:
        for cells in reader:
            if len(cells) > MAX_FIELDS:
                raise DarnError(
                    f"{what}: line {before + start + 1} has {len(cells):,} cells, more than {MAX_FIELDS:,}: give a .npy"
                )
            yield start, first + reader.line_num, cells
            start = first + reader.line_num
    except csv.Error as e:
        open_end = "end of data" in str(e)
        long = f"a cell has more than {LONGEST:,} characters" if "field limit" in str(e) else str(e)
        why, kind = ("a quote is never closed", UnclosedError) if open_end else (long, DarnError)
        raise kind(f"{what}: line {before + start + 1} cannot be read ({why}): correct its quotes.") from None


def is_blank(cells: list[str], width: int) -> bool:
    """A line without cells; in a table of one column, that is an empty cell."""
    return width > 1 and (not cells or (len(cells) == 1 and not cells[0].strip()))


def is_comment(cells: list[str], width: int) -> bool:
    """A line that begins with # and cannot be a row."""
    return bool(cells) and cells[0].startswith("#") and len(cells) != width


def is_header(cells: list[str]) -> bool:
    """No cell is a number; or they are 0, 1, 2, ... in order, which pandas writes over an array; or words and at least
    three years in a row.

    Another line with some numbers and some words counts as data and is refused there: if it were taken for a header, a
    row with a typo would be lost.
    """
    words = [cell.strip() for cell in cells]
    if len(words) > 2 and words == [str(i) for i in range(len(words))]:
        return True
    numbers = [word for word in words if is_number(word)]
    return any(words) and len(numbers) < len(words) and (not numbers or _are_years(numbers))


def _are_years(words: list[str]) -> bool:
    years = [int(word) for word in words if re.fullmatch(r"(1[89]|20)\d\d", word, re.ASCII)]
    steps = {b - a for a, b in itertools.pairwise(years)}
    return len(years) == len(words) > 2 and len(steps) == 1 and steps <= {1, -1, 5, -5, 10, -10}


def distinct(names: Iterable[str]) -> tuple[str, ...]:
    """The names of columns; one that came before says which column it is."""
    found: dict[str, None] = {}
    for i, name in enumerate(names, 1):
        found[f"{name} (column {i})".strip() if name in found else name] = None
    return tuple(found)

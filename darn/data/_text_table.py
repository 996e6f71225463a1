"""Reads text tables (csv, tsv, blank-separated): cells verbatim, each row with its line.

Uses the standard library's parser, which keeps text as written and knows the line of every row. polars fills short rows
with nulls, turns blank lines into rows, and takes ten times as long to import.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np

from darn.data._layout import BLANKS, Layout
from darn.errors import DarnError

SUFFIXES = (".csv", ".txt", ".tsv", ".data", ".amat")
# In this order if several are possible: a comma may be a decimal sign or part of a text, a semicolon rarely.
DELIMITERS = (";", "\t", ",", "|")
SPOKEN = {"tab": "\t", "\\t": "\t", "blank": BLANKS, "space": BLANKS, "comma": ",", "semicolon": ";"}
_LINES, _CHARACTERS = 1000, 1 << 18  # how much of a file is read to detect its delimiter


@dataclass(frozen=True)
class Record:
    """One row of a text table."""

    line: int  # of the file, counted from 1
    cells: list[str]
    raw: str  # its text in the file, with the blank lines and comments just above it


@dataclass(frozen=True)
class TextTable:
    """A text table whose delimiter and header are known; its rows are parsed on demand."""

    what: str
    lines: list[str]  # with their line ends
    delimiter: str
    after_blank: bool  # whether a quote may follow the delimiter and a blank
    width: int  # columns
    names: tuple[str, ...] | None  # the header, if there is one
    first: int  # the number of lines above the first row
    bom: bool

    def records(self) -> Iterator[Record]:
        """All rows, including those of empty cells; a blank line is a row only if there is one column."""
        above = self.first  # where the text that belongs to the next row begins
        for start, stop, cells in _parse(self.lines, self.delimiter, self.after_blank, self.what, first=self.first):
            if not _is_blank(cells, self.width) and not _is_comment(cells, self.width):
                cells = cells or [""]
                if len(cells) != self.width:
                    than = "the header has" if self.names else "the first row has"
                    raise DarnError(
                        f"{self.what}: line {start + 1} has {len(cells)} values {self.layout.described} but {than} "
                        f"{self.width}: correct the line, or give the delimiter."
                    )
                yield Record(start + 1, cells, "".join(self.lines[above:stop]))
                above = stop

    @cached_property
    def layout(self) -> Layout:
        """The format of the table, as far as its first rows show it."""
        some = self.lines[self.first : self.first + 200]
        ends = r"[ \t]*(\r\n|\n|\r)$" if self.delimiter == BLANKS else r"(\r\n|\n|\r)$"
        newlines = Counter(m[0] for line in some if line.strip() and (m := re.search(ends, line)))
        # Parsed as if quotes were letters, a line shows which of its cells are quoted.
        options = {"delimiter": self.delimiter, "skipinitialspace": self.after_blank or self.delimiter == BLANKS}
        plain = [row for row in csv.reader(some, quoting=csv.QUOTE_NONE, **options) if len(row) == self.width]
        quoted = tuple(j for j in range(self.width) if plain and all(row[j].startswith('"') for row in plain))
        return Layout(
            delimiter=self.delimiter,
            joint=self.delimiter + " " * self.after_blank,
            newline=newlines.most_common(1)[0][0] if newlines else "\n",
            quoted=quoted,
            head="".join(self.lines[: self.first]),
            bom=self.bom,
        )

    def bits(self) -> np.ndarray | None:
        """A plain table of 0/1 with single delimiters, (N, n), read without parsing; None for any other table."""
        lines = [line.rstrip("\r\n") for line in self.lines[self.first :]]
        size = 2 * self.width - 1
        if not lines or any(len(line) != size for line in lines):
            return None
        try:
            cells = np.frombuffer("".join(lines).encode("ascii"), np.uint8).reshape(len(lines), size)
        except UnicodeEncodeError:
            return None
        values, between = cells[:, ::2] - np.uint8(ord("0")), cells[:, 1::2]
        if (values > 1).any() or (between != ord(self.delimiter)).any():
            return None
        return values

    def numbers(self, label: int | None = None) -> tuple[np.ndarray, list[str]]:
        """All columns but `label` as floats (N, n), and the label's cells; text is refused with its line."""
        if label is None and self.width > 1 and len(self.lines) > self.first:
            options: dict = {"delimiter": None if self.delimiter == BLANKS else self.delimiter, "quotechar": '"'}
            # Twice as fast for valid tables; others are left to the exact reader, which names the line.
            with contextlib.suppress(ValueError):
                X = np.loadtxt(self.lines[self.first :], comments=None, ndmin=2, **options)
                if X.shape[1] == self.width:
                    return X, []
        parts, labels, rows = [], [], self.records()
        while chunk := list(islice(rows, max(1, (1 << 20) // self.width))):
            if label is not None:
                labels += [r.cells[label] for r in chunk]
            cells = [r.cells if label is None else r.cells[:label] + r.cells[label + 1 :] for r in chunk]
            if any("_" in r.raw for r in chunk):
                self._refuse(chunk, label)  # Python takes 1_0 for ten
            try:
                parts.append(np.array(cells, dtype=np.float64))
            except ValueError:
                self._refuse(chunk, label)
                raise
        return (np.concatenate(parts) if parts else np.zeros((0, self.width - (label is not None)))), labels

    def _refuse(self, records: list[Record], label: int | None) -> None:
        for r in records:
            for j, cell in enumerate(r.cells):
                if j != label and not is_number(cell):
                    said = f"is {cell[:40]!r}, not a number" if cell.strip() else "is empty"
                    raise DarnError(
                        f"{self.what}: line {r.line}, column {j + 1} (counted from 1) {said}: correct it, give "
                        f"categorical = 'auto' if the table holds categories, or labels = {j} for a class label."
                    )


def open_text(path: Path, data: bytes, what: str, delimiter: str | None = None) -> TextTable:
    """Detects a table's delimiter (unless it is given) and its header.

    Args:
        path: for its suffix, in messages.
        data: the bytes of the file.
        what: the file as the user named it, for messages.
        delimiter: one character, " " for any number of blanks, or "tab", "comma", "semicolon", "blank".

    Returns:
        The table, whose rows are parsed on demand.
    """
    if b"\0" in data[:4096]:
        raise DarnError(f"{what} is not text, although its name ends in {path.suffix}: correct the file's suffix.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise DarnError(f"{what} is not UTF-8 text (byte {e.start + 1}): save it as UTF-8.") from None
    lines = list(io.StringIO(text, newline=""))
    if not any(line.strip() and not line.startswith("#") for line in lines):
        raise DarnError(f"{what} is empty: it needs one row of values per line.")
    sample = _sample(lines)
    if delimiter is None:
        delimiter = sniff(sample)
    else:
        delimiter = SPOKEN.get(delimiter, delimiter)
        if len(delimiter) != 1 or delimiter in '"\r\n':
            raise DarnError(f"the delimiter {delimiter!r} must be one character, or the word tab or blank.")
    after_blank = delimiter != BLANKS and _quotes_follow_blanks(sample, delimiter, what)
    _, width = _agreement(sample, delimiter, after_blank)
    names, first = None, 0
    for start, stop, cells in _parse(lines, delimiter, after_blank, what):
        comment = _is_comment(cells, width) or (bool(cells) and cells[0].startswith("# "))
        if not cells or _is_blank(cells, width) or comment:
            first = stop
            continue
        width = len(cells)  # of the header or the first row, which the others must match
        if _is_header(cells):
            names, first = tuple(cell.strip() for cell in cells), stop
        else:
            first = start
        break
    return TextTable(what, lines, delimiter, after_blank, width, names, first, data.startswith(b"\xef\xbb\xbf"))


def sniff(sample: list[str]) -> str:
    """The delimiter that gives most lines the same number of cells, more than one."""
    agreement = {d: _agreement(sample, d, False) for d in DELIMITERS}
    fraction, delimiter = max(
        ((fraction, d) for d, (fraction, width) in agreement.items() if width > 1),
        key=lambda found: found[0],  # ties go to the first in DELIMITERS
        default=(0.0, ","),
    )
    if fraction:
        return delimiter
    fraction, width = _agreement(sample, BLANKS, False)
    numeric = all(is_number(word) for line in sample if not line.startswith("#") for word in line.split())
    return BLANKS if width > 1 and (fraction == 1 or numeric) else ","


def is_number(word: str) -> bool:
    """Whether the text is a number, 'nan' and 'inf' included."""
    try:
        float(word)
    except ValueError:
        return False
    return "_" not in word


def _agreement(sample: list[str], delimiter: str, after_blank: bool) -> tuple[float, int]:
    """Returns (fraction of the sampled rows with the most common number of cells, that number)."""
    try:
        rows = [cells for _, _, cells in _parse(sample, delimiter, after_blank, "", strict=False)]
    except DarnError:
        return 0.0, 0
    widths = Counter(len(cells) for cells in rows if cells and not cells[0].startswith("#"))
    if not widths:
        return 0.0, 1
    width, count = widths.most_common(1)[0]
    return count / widths.total(), width


def _quotes_follow_blanks(sample: list[str], delimiter: str, what: str) -> bool:
    """Whether cells are written as in `a, "b"`; inside quotes, a delimiter and a blank are just text."""
    return any(
        cell.startswith(' "') and delimiter + cell in "".join(sample[start:stop])
        for start, stop, cells in _parse(sample, delimiter, False, what, strict=False)
        for cell in cells[1:]
    )


def _sample(lines: list[str]) -> list[str]:
    size, sample = 0, []
    for line in lines[:_LINES]:
        sample.append(line)
        size += len(line)
        if size > _CHARACTERS:
            break
    return sample


def _parse(
    lines: list[str], delimiter: str, after_blank: bool, what: str, *, first: int = 0, strict: bool = True
) -> Iterator[tuple[int, int, list[str]]]:
    """Yields (first line, line after the last, cells) of every record, with lines counted from 0."""
    given = islice(lines, first, None)
    if delimiter == BLANKS:
        given = (line.strip() for line in given)
    reader = csv.reader(given, delimiter=delimiter, skipinitialspace=after_blank or delimiter == BLANKS, strict=strict)
    start = first
    try:
        for cells in reader:
            yield start, first + reader.line_num, cells
            start = first + reader.line_num
    except csv.Error as e:
        why = "a quote is never closed" if "end of data" in str(e) else str(e)
        raise DarnError(f"{what}: line {start + 1} cannot be read ({why}): correct its quotes.") from None


def _is_blank(cells: list[str], width: int) -> bool:
    return width > 1 and (not cells or (len(cells) == 1 and not cells[0].strip()))


def _is_comment(cells: list[str], width: int) -> bool:
    """A line that begins with # and cannot be a row."""
    return bool(cells) and cells[0].startswith("#") and len(cells) != width


def _is_header(cells: list[str]) -> bool:
    """No cell is a number; or they are 0, 1, 2, ... in order, which pandas writes over an array.

    A line with some numbers and some words counts as data and is refused there: if it were taken for a header, a row
    with a typo would be lost.
    """
    words = [cell.strip() for cell in cells]
    if len(words) > 2 and words == [str(i) for i in range(len(words))]:
        return True
    return any(words) and not any(map(is_number, words))

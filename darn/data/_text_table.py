"""Reads text tables (csv, tsv, blank-separated): cells verbatim, each row with its line."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, islice
from pathlib import Path
from typing import TextIO

import numpy as np

from darn.data._layout import BLANKS, Layout
from darn.data._limits import MAX_LINE
from darn.data._sniff import (
    CHARACTERS,
    LINES,
    UnclosedError,
    agreement,
    distinct,
    is_blank,
    is_comment,
    is_header,
    is_number,
    parse,
    quotes_follow_blanks,
    sample_of,
    sniff,
)
from darn.errors import DarnError
from darn.files import open_input

SUFFIXES = (".csv", ".txt", ".tsv", ".data", ".amat")
SPOKEN = {"tab": "\t", "\\t": "\t", "blank": BLANKS, "space": BLANKS, "comma": ",", "semicolon": ";"}
PART = 1 << 22  # characters of a part of a file
_SHOWN = 200  # rows that show the layout
_BOM = b"\xef\xbb\xbf"


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
    before: int = 0  # lines of the file that come before these, if it is read in parts

    def records(self) -> Iterator[Record]:
        """All rows, including those of empty cells; a blank line is a row only if there is one column."""
        above = self.first  # where the text that belongs to the next row begins
        for start, stop, cells in self._cells():
            if not is_blank(cells, self.width) and not is_comment(cells, self.width):
                cells = cells or [""]
                if len(cells) != self.width:
                    than = "the header has" if self.names else "the first row has"
                    line = self.before + start + 1
                    raise DarnError(
                        f"{self.what}: line {line} has {len(cells)} value{'s' * (len(cells) != 1)} "
                        f"{self.layout.described} but {than} {self.width}: correct the line, or give the delimiter"
                    )
                yield Record(self.before + start + 1, cells, "".join(self.lines[above:stop]))
                above = stop

    def _cells(self) -> Iterator[tuple[int, int, list[str]]]:
        form = self.delimiter, self.after_blank, self.what
        return parse(self.lines, *form, first=self.first, before=self.before)

    def count(self) -> int:
        """The number of rows."""
        return len(self.lines) - self.first if self.bits() is not None else sum(1 for _ in self.records())

    @cached_property
    def layout(self) -> Layout:
        """The format of the table, as far as its first rows show it."""
        some = self.lines[self.first : self.first + _SHOWN]
        newlines = Counter(end for line in some if line.strip() and (end := _end(line, self.delimiter)))
        # Parsed as if quotes were letters, a line shows which of its cells are quoted.
        options = {"delimiter": self.delimiter, "skipinitialspace": self.after_blank or self.delimiter == BLANKS}
        plain = []
        with contextlib.suppress(csv.Error):  # a cell that is too long is refused where its row is read
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
                    where = f"{self.what}: line {r.line}, column {j + 1} (counted from 1)"
                    if not cell.strip():
                        raise DarnError(
                            f"{where} is empty: fill it in, or train with categorical = 'auto', which takes missing "
                            "values"
                        )
                    column = j if self.names is None else self.names[j]
                    as_label = f", or labels = {column!r} for a class label" if self.width > 1 else ""
                    raise DarnError(
                        f"{where} is {cell[:40]!r}, not a number: correct it, or give categorical = 'auto' if the "
                        f"table holds categories{as_label}"
                    )


@dataclass(frozen=True)
class TextParts:
    """A text table in a file, read in parts."""

    path: Path
    head: TextTable  # its first lines, which show its format

    def read(self) -> Iterator[TextTable]:
        """The rows in tables of a few megabytes each, in order; every record is whole."""
        head, held, before = self.head, [], self.head.first
        lines = islice(_file_lines(self.path, head.what), head.first, None)
        while True:
            size = 0
            for line in lines:
                held.append(line)
                size += len(line)
                if size > PART:
                    break
            else:
                if held:
                    yield replace(head, lines=held, first=0, before=before)
                return
            stop = self._whole(held, before)
            if stop:
                yield replace(head, lines=held[:stop], first=0, before=before)
                held, before = held[stop:], before + stop

    def count(self) -> int:
        """The number of rows, by reading the file."""
        return sum(part.count() for part in self.read())

    def _whole(self, lines: list[str], before: int) -> int:
        """How many of the lines make up whole records: a quoted cell may go on in the next line."""
        if not any('"' in line for line in lines):
            return len(lines)
        stop = 0
        with contextlib.suppress(UnclosedError):
            for _, end, _ in parse(lines, self.head.delimiter, self.head.after_blank, self.head.what, before=before):
                stop = end
        return stop


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
    _check_text(data[:4096], path, what)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise DarnError(_not_utf8(what, e.start)) from None
    lines = list(_bounded(io.StringIO(text, newline=""), what))
    if not any(line.strip() and not line.startswith("#") for line in lines):
        raise DarnError(f"{what} is empty: it needs one row of values per line")
    return _open_lines(lines, what, delimiter, data.startswith(_BOM))[0]


def open_text_parts(path: Path, what: str, delimiter: str | None = None) -> TextParts:
    """As `open_text`, for a file that is read in parts."""
    with open_input(path) as f:
        start = f.read(4096)
    _check_text(start, path, what)
    lines, every, size, wanted, ended = [], _file_lines(path, what), 0, _SHOWN, False
    while not ended:  # until the lines show the format: more than usual, if there are comments above the first row
        ended = True
        for line in every:
            lines.append(line)
            size += len(line)
            if len(lines) >= wanted and (size > CHARACTERS or len(lines) >= LINES):
                ended = False
                break
        wanted = 2 * len(lines)
        if any(line.strip() and not line.startswith("#") for line in lines):
            table, found = _open_lines(lines, what, delimiter, start.startswith(_BOM))
            if ended or (found and len(lines) >= table.first + _SHOWN):
                return TextParts(path, table)
    raise DarnError(f"{what} is empty: it needs one row of values per line")


def _open_lines(lines: list[str], what: str, delimiter: str | None, bom: bool) -> tuple[TextTable, bool]:
    """The table, and whether its first row is among the lines."""
    sample = sample_of(lines)
    if delimiter is None:
        delimiter = sniff(sample)
    else:
        delimiter = SPOKEN.get(delimiter, delimiter)
        if len(delimiter) != 1 or delimiter in '"\r\n':
            raise DarnError(f"the delimiter {delimiter!r} must be one character, or the word tab or blank")
    after_blank = delimiter != BLANKS and quotes_follow_blanks(sample, delimiter, what)
    _, width = agreement(sample, delimiter, after_blank)
    names, first, found = None, 0, False
    for start, stop, cells in parse(lines, delimiter, after_blank, what):
        comment = is_comment(cells, width) or (bool(cells) and cells[0].startswith("# "))
        if not cells or is_blank(cells, width) or comment:
            first = stop
            continue
        found = True
        width = len(cells)  # of the header or the first row, which the others must match
        if is_header(cells):
            names, first = distinct(cell.strip() for cell in cells), stop
            _check_named(cells, parse(lines, delimiter, after_blank, what, first=stop, strict=False), what)
        else:
            first = start
        break
    return TextTable(what, lines, delimiter, after_blank, width, names, first, bom), found


def _check_named(head: list[str], rows: Iterator[tuple[int, int, list[str]]], what: str) -> None:
    """Refuses a first row that names few columns, as titles do. One column, of row numbers, may have no name."""
    nameless = [j for j, cell in enumerate(head) if not cell.strip()]
    some = [cells for _, _, cells in islice(rows, _SHOWN) if len(cells) == len(head)] if len(nameless) > 1 else []
    filled = [j + 1 for j in nameless if any(cells[j].strip() for cells in some)]
    if len(filled) > 1:
        said = ", ".join(map(str, filled[:8])) + ", ..." * (len(filled) > 8)
        raise DarnError(
            f"{what}: columns {said} have values but no name in the first row: name every column there, and take out "
            "the lines above the names"
        )


def _file_lines(path: Path, what: str) -> Iterator[str]:
    """The lines of a file with their ends."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as f:
            yield from _bounded(f, what)
    except UnicodeDecodeError:
        raise DarnError(_not_utf8(what, _undecodable(path))) from None


def _bounded(file: TextIO, what: str) -> Iterator[str]:
    """The lines, none of which is held in memory if it has no end."""
    for number in count(1):
        line = file.readline(MAX_LINE + 1)
        if len(line) > MAX_LINE:
            raise DarnError(f"{what}: line {number} has more than {MAX_LINE:,} characters: correct the line ends")
        if "\0" in line:
            raise DarnError(f"{what}: line {number} has a NUL character, which no text has: take it out")
        if not line:
            return
        yield line


def _end(line: str, delimiter: str) -> str:
    """How the line ends, with the blanks before it where blanks are delimiters; "" for a last line without an end."""
    text = line.rstrip("\r\n")
    if text == line:
        return ""
    return line[len(text.rstrip(" \t") if delimiter == BLANKS else text) :]


def _undecodable(path: Path) -> int:
    """The position of the first byte that is not UTF-8."""
    decoder, done = codecs.getincrementaldecoder("utf-8")(), 0
    with open(path, "rb") as f:
        while piece := f.read(1 << 20):
            pending = len(decoder.getstate()[0])
            try:
                decoder.decode(piece)
            except UnicodeDecodeError as e:
                return done - pending + e.start
            done += len(piece)
    return done - len(decoder.getstate()[0])


def _check_text(start: bytes, path: Path, what: str) -> None:
    if b"\0" not in start:
        return
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or _in_pairs(start):
        raise DarnError(f"{what} is UTF-16 text: save it as UTF-8, for example with `iconv -f UTF-16 -t UTF-8`")
    raise DarnError(f"{what} is not text, although its name ends in {path.suffix}: correct the file's suffix")


def _in_pairs(start: bytes) -> bool:
    """Whether every other byte is zero, as in UTF-16 without a byte-order mark."""
    return any(other.count(0) > 0.9 * len(other) and 0 not in own for own, other in _halves(start))


def _halves(start: bytes) -> list[tuple[bytes, bytes]]:
    even, odd = start[::2], start[1::2]
    return [(even, odd), (odd, even)]


def _not_utf8(what: str, at: int) -> str:
    return (
        f"{what} is not UTF-8 text (byte {at + 1}): save it as UTF-8, for example with "
        "`iconv -f WINDOWS-1252 -t UTF-8`."
    )

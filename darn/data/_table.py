"""Tables of text: csv, tsv, blank-separated; the delimiter and the header are found out."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from darn.data._check import matrix
from darn.data._labels import column_index
from darn.data._raw import WHOLE, Part, Raw
from darn.errors import DarnError

SUFFIXES = (".csv", ".txt", ".tsv", ".data", ".amat")


def read_table(path: Path, data: bytes, what: str, labels=None) -> Raw:
    """One table, one row a line; blank lines and lines beginning with # are passed over."""
    text = decoded(path, data, what)
    kept = [(i, s) for i, s in enumerate(text.split("\n"), 1) if s.strip() and not s.lstrip().startswith("#")]
    if not kept:
        raise DarnError(f"{what} is empty: it needs one row of values a line.")
    numbers, lines = [i for i, _ in kept], [s.strip(" \r") for _, s in kept]
    delimiter = sniff(lines)
    columns = header(lines[0], delimiter)
    if columns:
        numbers, lines = numbers[1:], lines[1:]
        if not lines:
            raise DarnError(f"{what} has no rows below its header: give at least one.")
    width = len(columns) if columns else count(lines[0], delimiter)
    for i, line in zip(numbers, lines):
        if count(line, delimiter) != width:
            than = "the header" if columns else f"line {numbers[0]}"
            quoted = ", or give --categorical auto if it is a table of words in quotes" * ('"' in line)
            raise DarnError(
                f"{what}: line {i} has {count(line, delimiter)} values but {than} has {width}: mend the line{quoted}."
            )
    c = None if labels is None else column_index(labels, columns, width, what)
    found = None if c is None else np.array([split(line, delimiter)[c] for line in lines], dtype=str)
    X = bits(lines, width, delimiter) if c is None else None
    if X is None:
        X = parse(lines, numbers, delimiter, width, c, what)
    if c is not None and columns:
        columns = columns[:c] + columns[c + 1 :]
    X, _ = matrix(X, what, columns)
    return Raw(what, {WHOLE: Part(X, labels=found)}, columns=columns, source=f"table {path.name}")


def decoded(path: Path, data: bytes, what: str) -> str:
    """The file as text."""
    if b"\0" in data[:4096]:
        raise DarnError(f"{what} is not text, though its name ends in {path.suffix}: give the file its right ending.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise DarnError(f"{what} is not UTF-8 text (byte {e.start + 1}): save it as UTF-8.") from None


def sniff(lines: list[str]) -> str | None:
    """The delimiter, from a line of values (the second, since the first may be a header); None for blanks.

    A semicolon or tab beats a comma, which may be a decimal sign or stand in a name.
    """
    line = lines[min(1, len(lines) - 1)]
    return next((d for d in (";", "\t", ",") if d in line), None)


def split(line: str, delimiter: str | None) -> list[str]:
    return [word.strip().strip('"').strip() for word in line.split(delimiter)]


def count(line: str, delimiter: str | None) -> int:
    return line.count(delimiter) + 1 if delimiter else len(line.split())


def is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return "_" not in word


def header(line: str, delimiter: str | None) -> tuple[str, ...] | None:
    """Names of the columns, if the first line has them: no value in it is a number.

    Or the values are 0, 1, 2, ... in order, which pandas writes over an array. A line with some numbers and
    some words stays data and is refused there: taken for a header, a row with a slip in it would be lost.
    """
    words = split(line, delimiter)
    if len(words) > 2 and words == [str(i) for i in range(len(words))]:
        return tuple(words)
    return None if any(map(is_number, words)) or not any(words) else tuple(words)


def bits(lines: list[str], width: int, delimiter: str | None) -> np.ndarray | None:
    """The common table of 0/1 and single delimiters, read without parsing; None for any other."""
    if any(len(line) != 2 * width - 1 for line in lines):
        return None
    try:
        cells = np.frombuffer("".join(lines).encode("ascii"), np.uint8).reshape(len(lines), 2 * width - 1)
    except UnicodeEncodeError:
        return None
    values, between = cells[:, ::2] - np.uint8(ord("0")), cells[:, 1::2]
    if (values > 1).any() or (between != ord(delimiter or " ")).any():
        return None
    return values


def parse(lines, numbers, delimiter, width: int, label: int | None, what: str) -> np.ndarray:
    """Any table of numbers, less the label's column; a word that is no number is refused with its line."""
    use = None if label is None else [j for j in range(width) if j != label]
    try:
        return np.loadtxt(lines, delimiter=delimiter, comments=None, quotechar='"', usecols=use, ndmin=2)
    except ValueError as e:
        for i, line in zip(numbers, lines):
            for j, word in enumerate(split(line, delimiter)):
                if j != label and not is_number(word):
                    said = f"is {word[:40]!r}, not a number" if word else "is empty"
                    raise DarnError(
                        f"{what}: line {i}, column {j + 1} (counted from 1) {said}: mend it, give --categorical auto "
                        f"if the table holds categories, or --labels {j} (labels = {j} in Python) for a class label."
                    ) from None
        raise DarnError(f"{what} could not be read as a table of numbers: {e}.") from None

"""The notes of a compressed file, typed and checked: what its rows were, so that they can be restored."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from darn.data._images import MAX_PIXELS
from darn.data._layout import Layout
from darn.data._schema import Schema
from darn.data._tiles import n_tiles
from darn.errors import DarnError, FormatError
from darn.jsonable import decode

IMAGES = (".png", ".pbm")  # formats that can be restored without loss
MOST_BLANKS = 100  # around a number: they are written in every row
_ARRAYS = {np.dtype(order + np.dtype(kind).str[1:]).str for kind in "?bhilqBHILQefdg" for order in "<>"}


@dataclass(frozen=True)
class TableNotes:
    """Of a text table; see `darn.data._table_notes` and, for a table of words and numbers, `darn.data._cells`."""

    layout: Layout = field(default_factory=Layout)
    texts: dict[str, dict[str, str]] = field(default_factory=dict)  # by column: the text of a value
    around: dict[str, tuple[str, str]] = field(default_factory=dict)  # by column: blanks before and after a number
    lines: dict[str, str] = field(default_factory=dict)  # by row: its text
    tail: str = ""
    columns: tuple[str, ...] | None = None
    schema: str | None = None  # identifies the schema of the model
    inside: list[Any] | None = None  # this schema, if the model is inside the file

    def fits(self, rows: int, n: int, schema: Schema | None) -> bool:
        """Whether the notes can be of this many rows of a model."""
        names = self.columns or ()
        width = n if schema is None else len(names)
        texts = (self.tail, *self.lines.values(), *(t for column in self.texts.values() for t in column.values()))
        return (
            self.layout.is_plausible(width)
            and all(map(_is_text, texts))
            and all(_is_below(j, width) for j in self.texts)
            and all(_is_below(i, rows) for i in self.lines)
            and all(_is_below(j, width) and _is_blank(*pair) for j, pair in self.around.items())
            and (self.columns is None) == (schema is None)
            and len(set(names)) == len(names)
            and (schema is None or (set(schema.modelled) <= set(names) and not self.lines))
            and (schema is None or sum(schema.sizes) == n)
        )


@dataclass(frozen=True)
class Notes:
    """Of images, an array, or a table."""

    images: tuple[tuple[str, int, int], ...] = ()  # name, height, width
    tile: tuple[int, int] | None = None
    single: int = 0  # whether the input was an image file, not a folder
    dtype: str = "|u1"
    shape: tuple[int, ...] | None = None  # of a row
    table: TableNotes | None = None

    def fits(self, rows: int, n: int, schema: Schema | None = None) -> bool:
        """Whether names stay inside their folder, sizes add up to the rows, and columns are the model's."""
        if self.table is not None:
            return self.table.fits(rows, n, schema)
        if self.tile is not None:
            names, tile = {name for name, *_ in self.images}, self.tile
            return (
                min(tile) > 0
                and tile[0] * tile[1] == n
                and 0 < len(names) == len(self.images)
                and (len(names) == 1 or not self.single)
                and all(map(_is_name, names))
                and all(min(size) > 0 and size[0] * size[1] <= MAX_PIXELS for _, *size in self.images)
                and sum(int(np.prod(n_tiles((h, w), tile))) for _, h, w in self.images) == rows
            )
        shape = (n,) if self.shape is None else self.shape
        return (
            not self.images
            and self.dtype in _ARRAYS
            and len(shape) <= 2
            and all(0 < k <= n for k in shape)
            and int(np.prod(shape)) == n
        )


def read_notes(notes: Mapping[str, Any]) -> Notes:
    """The notes as typed values.

    Args:
        notes: of a compressed file, perhaps forged.

    Raises:
        FormatError: if darn never writes such notes.
    """
    try:
        return decode(Notes, dict(notes), "the notes")
    except DarnError as e:
        raise FormatError(
            f"the file's notes on its images, array or table cannot be read ({e}): it is not genuine"
        ) from e


def _is_name(name: str) -> bool:
    plain = Path(name).name == name and Path(name).suffix.lower() in IMAGES and "\0" not in name
    try:
        return plain and len(os.fsencode(name)) <= 255
    except UnicodeEncodeError:
        return False


def _is_text(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)  # half a character cannot be written


def _is_blank(before: str, after: str) -> bool:
    return not (before + after).strip() and len(before) + len(after) <= MOST_BLANKS


def _is_below(number: str, most: int) -> bool:
    return number.isascii() and number.isdigit() and len(number) < 19 and int(number) < most

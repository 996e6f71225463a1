"""The format of a text table: delimiter, line ends, quotes, header. Enough to write it again byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

BLANKS = " "  # as a delimiter: any number of blanks
NAMES = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars", BLANKS: "blanks"}


@dataclass(frozen=True)
class Layout:
    """The format of a text table, apart from its cells."""

    delimiter: str = ","
    joint: str = ","  # what is written between two cells: the delimiter, perhaps with a blank after it
    newline: str = "\n"
    quoted: tuple[int, ...] = ()  # columns that are always in quotes; others only if necessary
    head: str = ""  # the text above the first row: comments and the header
    bom: bool = False  # whether the file begins with a byte-order mark

    @property
    def described(self) -> str:
        return f"between {NAMES.get(self.delimiter, repr(self.delimiter))}"

    def line(self, cells: Sequence[str]) -> str:
        """One row as text.

        Not by the csv module, which cannot quote only some of the columns.
        """
        needs = {'"', "\r", "\n", self.delimiter}
        return (
            self.joint.join(
                '"' + cell.replace('"', '""') + '"'
                if j in self.quoted or not needs.isdisjoint(cell) or (not cell and self.delimiter == BLANKS)
                else cell
                for j, cell in enumerate(cells)
            )
            + self.newline
        )

    def to_json(self) -> dict[str, Any]:
        """The fields that are not the usual ones."""
        return {k: v for k, v in asdict(self).items() if v != getattr(Layout, k)}

    @staticmethod
    def from_json(found: dict[str, Any]) -> Layout:
        """Raises TypeError or ValueError for what `to_json` never writes."""
        known = {f.name for f in fields(Layout)}
        if not set(found) <= known:
            raise ValueError("unknown fields")
        quoted = tuple(found.get("quoted", ()))
        texts = [found.get(k, "") for k in ("delimiter", "joint", "newline", "head")]
        if not all(isinstance(t, str) for t in texts) or not all(type(j) is int for j in quoted):
            raise TypeError("not text")
        return Layout(**found | {"quoted": quoted, "bom": bool(found.get("bom", False))})

"""The format of a text table: delimiter, line ends, quotes, header. Enough to write it again byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
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

    def is_plausible(self, width: int) -> bool:
        """Whether it can be the format of a table of this many columns: what is written again and again is short."""
        return (
            len(self.delimiter) == 1
            and self.joint in (self.delimiter, f"{self.delimiter} ")
            and len(self.newline) <= 200
            and len(self.quoted) <= width
            and not any("\ud800" <= c <= "\udfff" for c in self.delimiter + self.newline + self.head)
        )

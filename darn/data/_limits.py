"""How much a file may unpack to: small files that ask for much are refused before anything is allocated."""

from __future__ import annotations

from darn.errors import DarnError

MAX_UNPACKED = 256 << 20  # bytes, and for larger files
MAX_RATIO = 100  # times their own size
MAX_CELLS = 1 << 24  # of a Parquet table, and for larger files
CELLS_PER_BYTE = 16  # a bit packed and compressed
MAX_LINE = 1 << 24  # characters of a line of a text table
MAX_FIELDS = 1 << 18  # cells of a row of a text table
MAX_NAME = 1000  # characters of a column's name, which every unit of the column repeats


def check_unpacked(size: int, packed: int, what: str) -> None:
    """Refuses data that are much larger than their file.

    Args:
        size: bytes that the file declares, unpacked.
        packed: bytes of the file.
        what: the file as the user named it, to begin a sentence with.
    """
    most = max(MAX_UNPACKED, MAX_RATIO * packed)
    if size > most:
        raise DarnError(
            f"{what} has {packed:,} bytes but unpacks to {size:,}, more than {most:,}: save it without compression"
        )


def check_cells(cells: int, packed: int, what: str) -> None:
    """Refuses a table with many more cells than bytes."""
    most = max(MAX_CELLS, CELLS_PER_BYTE * packed)
    if cells > most:
        raise DarnError(
            f"{what} has {packed:,} bytes but {cells:,} cells, more than {most:,}: save it as several files"
        )


def check_names(names, what: str) -> None:
    """Refuses names of columns that are whole texts."""
    longest = max(names, key=len, default="")
    if len(longest) > MAX_NAME:
        raise DarnError(
            f"{what} has a column called {longest[:40]!r}..., of {len(longest):,} characters: at most {MAX_NAME:,} are "
            "possible"
        )

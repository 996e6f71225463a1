"""Reading the user's files: ordinary files only, with one sentence for what cannot be read."""

import json
import os
import stat
from io import BufferedReader
from pathlib import Path

from darn.errors import DarnError


def open_input(path: str | Path) -> BufferedReader:
    """Opens an ordinary file for reading; devices and pipes may have no end, or never begin, and are refused.

    If the file cannot be read, the DarnError has the OSError as its cause.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
            raise DarnError(f"{path} is a device or a pipe: give an ordinary file")
        return open(path, "rb")
    except OSError as e:
        raise DarnError(f"{path} cannot be read: {e.strerror}") from e
    except ValueError as e:  # a name that no file can have
        raise DarnError(f"{str(path)[:200]!r} cannot be read: {e}") from e


def read_bytes(path: str | Path, most: int | None = None) -> bytes:
    """The content of an ordinary file, of at most `most` bytes; see `open_input`."""
    with open_input(path) as f:
        if most is not None and os.fstat(f.fileno()).st_size > most:
            raise DarnError(f"{path} is larger than {most:,} bytes")
        try:
            return f.read()
        except OSError as e:
            raise DarnError(f"{path} cannot be read: {e.strerror}") from e


def read_record(path: Path) -> dict:
    """One JSON file of results."""
    try:
        found = json.loads(path.read_text())
        if not isinstance(found, dict):
            raise ValueError("not an object")
        return found
    except (OSError, ValueError) as e:
        raise DarnError(f"{path} is not a readable result file: restore it, or compute it again") from e

"""Folders that one process at a time writes to."""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

from darn.errors import DarnError
from darn.files import cannot_write

LOCK = ".lock"
# The temporary names that `darn.files.atomic` uses.
_TEMPORARY = re.compile(r"\.(recipe|metrics|model|checkpoint|report|sweep)-[a-z0-9_]{8}\.(json|jsonl|safetensors|html)")


def is_unused(folder: str | Path) -> bool:
    """Whether a run may be started in the folder.

    Args:
        folder: Any path.

    Returns:
        True if there is nothing, an empty folder, or one with only the remains of a killed start.
    """
    folder = Path(folder)
    if folder.is_dir():
        return all(_is_remains(path) for path in folder.iterdir())
    return not folder.exists() and not folder.is_symlink()


def _is_remains(path: Path) -> bool:
    return path.name == LOCK or _TEMPORARY.fullmatch(path.name) is not None


@contextlib.contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Creates the folder if necessary and keeps other processes out of it until the block ends.

    The lock is the kernel's (flock on a file in that folder), so it ends with the process, however that ends, and
    cannot be left behind. Temporary files of interrupted writes are removed.

    Args:
        folder: Where the block is going to write.

    Raises:
        DarnError: Another process holds the folder, or it cannot be written to.
    """
    folder = Path(folder)
    handle = _acquire(folder)
    try:
        for path in folder.iterdir():
            if _TEMPORARY.fullmatch(path.name):
                path.unlink(missing_ok=True)
        yield
    finally:
        os.close(handle)  # which releases the lock


def _acquire(folder: Path) -> int:
    while True:
        handle = _open(folder)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise DarnError(
                f"another process is writing to {folder}: wait until it ends, or choose another folder"
            ) from None
        except OSError as e:
            os.close(handle)
            raise DarnError(cannot_write(folder, e)) from e
        # The last holder may have removed the folder between opening the file and locking it: then try again.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(folder / LOCK)):
                return handle
        os.close(handle)


def _open(folder: Path) -> int:
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except FileNotFoundError:  # removed meanwhile
            continue
        except OSError as e:
            raise DarnError(cannot_write(folder, e)) from e

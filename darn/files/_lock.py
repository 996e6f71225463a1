"""Folders that one process at a time writes to."""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from darn.errors import DarnError
from darn.files._write import cannot_write, is_left_over

LOCK = ".lock"


def is_unused(folder: str | Path, written: Sequence[str], besides: Sequence[str] = ()) -> bool:
    """Whether the folder is free for new work.

    Args:
        folder: Any path.
        written: The names of the files that the work writes there.
        besides: The names of files that do not count.

    Returns:
        True if there is nothing, an empty folder, or one with only the remains of a killed start.
    """
    folder = Path(folder)
    if folder.is_dir():
        names = {LOCK, *besides}
        return all(path.name in names or is_left_over(path, written) for path in folder.iterdir())
    return not folder.exists() and not folder.is_symlink()


@contextlib.contextmanager
def locked(folder: str | Path, written: Sequence[str]) -> Iterator[None]:
    """Creates the folder if necessary and keeps other processes out of it until the block ends.

    The lock is the kernel's (flock on a file in that folder), so it ends with the process, however that ends, and
    cannot be left behind. Temporary files of interrupted writes are removed. What the block writes stays in the folder:
    nothing is written through a link to another one.

    Args:
        folder: Where the block is going to write.
        written: The names of the files that it writes.

    Raises:
        DarnError: Another process holds the folder, or it cannot be written to.
    """
    folder = Path(folder)
    handle = _acquire(folder)
    try:
        for path in folder.iterdir():
            if is_left_over(path, written):
                path.unlink(missing_ok=True)
            elif path.is_symlink() and path.is_dir():
                raise DarnError(f"{path} is a link to another folder, and might lead anywhere: move that one there")
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

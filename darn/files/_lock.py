"""Folders and files that one process at a time writes to."""

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
    with _held(folder / LOCK, folder):
        for path in folder.iterdir():
            if is_left_over(path, written):
                path.unlink(missing_ok=True)
            elif path.is_symlink() and path.is_dir():
                raise DarnError(f"{path} is a link to another folder, and might lead anywhere: move that one there")
        yield


@contextlib.contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """As `locked`, for one file among others; the lock is a file beside it, until the block succeeds.

    Args:
        path: What the block is going to write.

    Raises:
        DarnError: Another process holds the file, or it cannot be written.
    """
    lock = path.with_name(f".{path.name}.lock")
    with _held(lock, path):
        for other in path.parent.iterdir():
            if is_left_over(other, [path.name]):
                other.unlink(missing_ok=True)
        yield
        lock.unlink(missing_ok=True)


@contextlib.contextmanager
def _held(lock: Path, what: Path) -> Iterator[None]:
    """Keeps other processes from a lock file, which is created if necessary, until the block ends."""
    handle = _acquire(lock, what)
    try:
        yield
    finally:
        os.close(handle)  # which releases the lock


def _acquire(lock: Path, what: Path) -> int:
    while True:
        handle = _open(lock, what)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise DarnError(f"another process is writing to {what}: wait until it ends, or write elsewhere") from None
        except OSError as e:
            os.close(handle)
            raise DarnError(cannot_write(what, e)) from e
        # The last holder may have removed the file between its being opened and locked: then try again.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(lock)):
                return handle
        os.close(handle)


def _open(lock: Path, what: Path) -> int:
    while True:
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except FileNotFoundError:  # removed meanwhile
            continue
        except OSError as e:
            raise DarnError(cannot_write(what, e)) from e

"""Writing files so that a name always holds a whole file: the old one or the new one."""

import contextlib
import errno
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from darn.errors import DarnError

LONGEST_NAME = 255  # bytes, in most file systems
RUN_FILES = ("model.safetensors", "checkpoint.safetensors", "recipe.json", "metrics.jsonl")  # of a run folder


def check_target(path: str | Path, *inputs: str | Path | None) -> None:
    """Refuses to overwrite a folder, a device, a pipe, or one of the input files.

    Args:
        path: the file to write.
        inputs: the files it will be made from; None and names that are not files are ignored.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # nothing to overwrite; any other problem shows up when the file is written
    if stat.S_ISDIR(mode):
        raise DarnError(f"{path} is a folder: name a file to write")
    if not stat.S_ISREG(mode):
        raise DarnError(f"{path} is a device or a pipe, not a file: name a file to write")
    for given in inputs:
        if given is not None and any(os.path.samefile(path, file) for file in _files_of(Path(given))):
            raise DarnError(f"{path} is itself an input: name another file to write")


def check_suffix(path: str | Path, endings: Sequence[str]) -> None:
    """Refuses an output with any other suffix than these.

    Args:
        path: the file to write.
        endings: with the dot.
    """
    *others, last = endings
    if Path(path).suffix.lower() not in endings:
        either = f"{', '.join(others)} or {last}" if others else last
        raise DarnError(f"{path}: the suffix chooses the format, so it must be {either}")


def _files_of(given: Path) -> list[Path]:
    """The files that are read if `given` is an input: of a folder the images, or what training wrote."""
    if not given.is_dir():
        return [given] if given.exists() else []
    trained = [f for f in map(given.joinpath, RUN_FILES) if f.exists()]
    return trained or [f for f in given.iterdir() if f.is_file()]


@contextlib.contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`, which is renamed to `path` if the block succeeds and removed otherwise."""
    path = Path(path)
    check_target(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The suffix is kept, since some writers choose their format by it.
        handle, name = tempfile.mkstemp(prefix=_prefix(path.name), suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        with open(temporary, "rb") as f:
            os.fsync(f.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, path)
    except Exception as e:
        failed = _os_error(e)
        if failed is None:
            raise
        raise DarnError(cannot_write(path, failed)) from e
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _prefix(name: str) -> str:
    """What the temporary names for a file begin with: its own name, as far as there is room for ten more bytes."""
    path = Path(name)
    room = max(LONGEST_NAME - 10 - len(os.fsencode(path.suffix)), 0)
    return f".{os.fsencode(path.stem)[:room].decode(errors='ignore')}-"


def is_left_over(path: Path, names: Sequence[str]) -> bool:
    """Whether the file is what an interrupted `atomic` write of one of these names has left behind."""
    ends = ((re.escape(_prefix(n)), re.escape(Path(n).suffix)) for n in names)
    return any(re.fullmatch(f"{start}[a-z0-9_]{{8}}{end}", path.name) for start, end in ends)


@contextlib.contextmanager
def open_output(path: str) -> Iterator[BinaryIO]:
    """A binary file that gets its name once it is complete; standard output for "-"."""
    if path == "-":
        yield sys.stdout.buffer
        return
    with atomic(path) as temporary, open(temporary, "wb") as f:
        yield f


def _os_error(e: Exception) -> OSError | None:
    """The OSError behind an exception; safetensors only mentions it in the text."""
    if isinstance(e, OSError):
        return e
    found = re.search(r"\(os error (\d+)\)", str(e))
    return OSError(int(found[1]), os.strerror(int(found[1]))) if found else None


def cannot_write(path: str | Path, e: OSError) -> str:
    """The sentence for a failed write."""
    if e.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left on the disk for {path}: free some space, or write elsewhere"
    return f"cannot write {path}: {e.strerror or e}"

"""Writing files so that a name always holds a whole file: the old one or the new one."""

import contextlib
import errno
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from darn.errors import DarnError


@contextlib.contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; it takes that name when the block ends well, and vanishes otherwise."""
    path = Path(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The ending is kept, since some writers choose their format by it.
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
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


def _os_error(e: Exception) -> OSError | None:
    """The system's refusal behind an exception; safetensors has it in the text only."""
    if isinstance(e, OSError):
        return e
    found = re.search(r"\(os error (\d+)\)", str(e))
    return OSError(int(found[1]), os.strerror(int(found[1]))) if found else None


def cannot_write(path: str | Path, e: OSError) -> str:
    """The sentence for a failed write."""
    if e.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left on the disk for {path}: free some, or write elsewhere with --out"
    return f"cannot write {path}: {e.strerror or e}"


def read_record(path: Path) -> dict:
    """One JSON file of results."""
    try:
        found = json.loads(path.read_text())
        if not isinstance(found, dict):
            raise ValueError("not an object")
        return found
    except (OSError, ValueError) as e:
        raise DarnError(f"{path} is not a readable result: restore it, or make it again with --again") from e

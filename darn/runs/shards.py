"""A part of a job that many processes share: which rows it has, where it writes, and whether that is done.

The shards of one output stand beside each other, as NAME-00001-of-00008.npy and so on, with NAME-of-00008.json, which
says what they are shards of. A shard gets its name once it is complete: what has the name is done.
"""

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from darn.errors import DarnError
from darn.files import cannot_write, locked_file, read_bytes
from darn.jsonable import parse

MOST = 99_999  # shards of a job
_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.\w+)")
_ENDS = 1 << 20  # bytes at both ends of a file that tell it from others
_JSON = 1 << 20


@dataclass(frozen=True)
class Shard:
    """One of `of` shards, counted from 1."""

    number: int
    of: int

    @staticmethod
    def parse(text: str) -> "Shard":
        """From a text such as 3/8."""
        found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        if found is None:
            raise DarnError(f"a shard is written I/N, such as 3/8 for the third of eight, not {text!r}")
        number, of = int(found[1]), int(found[2])
        if not 1 <= of <= MOST:
            raise DarnError(f"there can be 1 to {MOST:,} shards, not {of:,}")
        if not 1 <= number <= of:
            raise DarnError(f"there is no shard {number:,} of {of:,}: they are numbered 1 to {of:,}")
        return Shard(number, of)

    @staticmethod
    def of_path(path: Path) -> "tuple[str, Shard] | None":
        """(the output's path, the shard) of a shard's own path; None for any other path."""
        found = _NAME.fullmatch(path.name)
        if found is None or not 1 <= int(found[2]) <= int(found[3]):
            return None
        return str(path.with_name(found[1] + found[4])), Shard(int(found[2]), int(found[3]))

    def rows(self, n: int) -> tuple[int, int]:
        """(first row, end) of this shard, of n rows: shards follow each other and differ by one row at most."""
        return n * (self.number - 1) // self.of, n * self.number // self.of

    def path(self, out: str | Path) -> Path:
        """Where this shard of an output is written."""
        out = Path(out)
        return out.with_name(f"{out.stem}-{self.number:05}-of-{self.of:05}{out.suffix}")

    def manifest(self, out: str | Path) -> Path:
        """Where it is written what the shards are of."""
        out = Path(out)
        return out.with_name(f"{out.stem}-of-{self.of:05}.json")

    def __str__(self) -> str:
        return f"shard {self.number:,} of {self.of:,}"


@contextlib.contextmanager
def claimed(shard: Shard, out: str | Path, job: dict[str, Any]) -> Iterator[bool]:
    """Keeps other processes from the same shard until the block ends; says whether there is anything to do.

    Args:
        shard: of the job.
        out: the output that all shards together make.
        job: what is computed from what, JSON-compatible: the same for all shards.

    Yields:
        Whether the shard is still to be written.

    Raises:
        DarnError: The shards beside it are of another job, or another process is writing this one.
    """
    path = shard.path(out)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        done = [p for p in path.parent.iterdir() if _is_beside(p, path)]
        if done and not os.path.lexists(shard.manifest(out)):  # it is older than any of them
            raise DarnError(
                f"nothing says what {done[0]} is a shard of, as {shard.manifest(out).name} did: remove these shards, "
                "or choose another output"
            )
        if path.exists() and not path.is_file():
            raise DarnError(f"{path} is not a file: remove it, or choose another output")
        _check_job(shard.manifest(out), job | {"shards": shard.of})
    except OSError as e:
        raise DarnError(cannot_write(path, e)) from e
    with locked_file(path):
        yield not path.exists()


def _is_beside(path: Path, shard: Path) -> bool:
    """Whether this is the path of a shard of the same output, divided in the same way."""
    found, own = Shard.of_path(path), Shard.of_path(shard)
    return found is not None and own is not None and (found[0], found[1].of) == (own[0], own[1].of)


def _check_job(path: Path, job: dict[str, Any]) -> None:
    """Writes what the shards are of, unless another shard has; then compares."""
    if not path.exists():
        # A link is made or refused at once: of several processes, one writes, and no one reads half of it.
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=".json", dir=path.parent)
        try:
            with os.fdopen(handle, "w") as f:
                f.write(json.dumps(job, indent=1) + "\n")
                f.flush()
                os.fsync(f.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(name, path)
        finally:
            os.unlink(name)
    found = parse(read_bytes(path, _JSON), str(path), _JSON)
    other = [k for k in job if not isinstance(found, dict) or found.get(k) != job[k]]
    if other:
        raise DarnError(
            f"{path} is of shards with other {' and '.join(other)}: choose another output, or remove these shards first"
        )


def mark_of(source: str) -> dict[str, Any] | str:
    """What tells an input from others, without reading all of it: its size, and a checksum of both its ends."""
    path = Path(source)
    if not path.exists():
        return source
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    size, digest = 0, hashlib.sha256()
    for file in files:
        bytes_here = file.stat().st_size
        size += bytes_here
        digest.update(os.fsencode(file.relative_to(path) if file != path else "") + f":{bytes_here}".encode())
        with open(file, "rb") as f:
            digest.update(f.read(_ENDS))
            f.seek(max(bytes_here - _ENDS, 0))
            digest.update(f.read())
    return {"bytes": size, "sha256_of_ends": digest.hexdigest()}


def in_order(paths: list[str]) -> list[str]:
    """Paths as given; shards of one output in their order, all of which must be there."""
    found = [Shard.of_path(Path(p)) for p in paths]
    known = [f for f in found if f is not None]
    if len(known) < len(found) or len({(out, shard.of) for out, shard in known}) != 1:
        return paths
    of, numbers = known[0][1].of, [shard.number for _, shard in known]
    twice = [i for i, count in Counter(numbers).items() if count > 1]
    if twice:
        raise DarnError(f"{Shard(twice[0], of)} is given twice: give each one once")
    missing = sorted(set(range(1, of + 1)) - set(numbers))
    if missing:
        some = ", ".join(map(str, missing[:8])) + ", ..." * (len(missing) > 8)
        raise DarnError(f"of {of:,} shards, {len(missing):,} are missing ({some}): compute these first")
    return [path for _, path in sorted(zip(numbers, paths))]

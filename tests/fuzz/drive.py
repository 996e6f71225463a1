"""Runs a target many times in this process, and counts what came of it."""

import contextlib
import io
import resource
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from darn.errors import DarnError

SECONDS = 30  # of processor time for one file: other programs may be running
WAITING = 300  # seconds on the wall, for what waits for ever
MEMORY = 2 << 30  # bytes beyond what the process held before the file
CAP = 12 << 30  # what a bomb gets before the allocation fails


class Slow(BaseException):
    """A file took too long; not an Exception, so that nothing takes it for a damaged file."""


@dataclass
class Counts:
    """What came of a target's files."""

    name: str
    files: int = 0
    outcomes: Counter = field(default_factory=Counter)  # refused, same, other, ...
    failures: list[str] = field(default_factory=list)  # tracebacks, silent changes, too much memory or time
    peak_mb: float = 0.0
    slowest: float = 0.0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "files": self.files,
            **dict(sorted(self.outcomes.items())),
            "failures": len(self.failures),
            "first_failures": self.failures[:20],
            "peak_memory_mb": round(self.peak_mb),
            "slowest_seconds": round(self.slowest, 2),
            "seconds": round(self.seconds, 1),
        }


class SilentChange(Exception):
    """A damaged file was taken for a good one and gave something else."""


def _peak() -> int:
    """The most memory of this process since `_forget_peak`, in bytes."""
    return _status("VmHWM")


def _status(name: str) -> int:
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith(name))


def _forget_peak() -> None:
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as f:
        f.write("5")


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """A cap on memory, so that a bomb fails instead of taking the machine with it, and an alarm."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (CAP, before[1]))

    def late(*_):
        raise Slow

    old = [(s, signal.signal(s, late)) for s in (signal.SIGALRM, signal.SIGPROF)]
    try:
        yield
    finally:
        for number, handler in old:
            signal.signal(number, handler)
        resource.setrlimit(resource.RLIMIT_DATA, before)


def drive(name: str, once: Callable[[np.random.Generator, Path], str], folder: Path, count: int, seed: int) -> Counts:
    """Calls `once(rng, folder)` for each file; it returns an outcome in one word, or raises.

    Args:
        name: of the target.
        once: makes one damaged file in the folder and opens it. A `DarnError` of one line means refused; any other
            exception is a failure.
        folder: an empty one, for the files.
        count: how many files.
        seed: of the first file; each has a generator of its own, so that a failure can be repeated alone.
    """
    counts, began = Counts(name), time.monotonic()
    with limits():
        for k in range(seed, seed + count):
            _one(counts, once, np.random.default_rng([k, len(name)]), folder, k)
    counts.seconds = time.monotonic() - began
    return counts


def _one(counts: Counts, once, rng: np.random.Generator, folder: Path, k: int) -> None:
    counts.files += 1
    _forget_peak()
    held = _status("VmRSS")
    started, failed = time.process_time(), ""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(WAITING)
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            outcome = once(rng, folder)
    except DarnError as e:
        outcome = "refused"
        if "\n" in str(e) or not str(e) or len(str(e)) > 1000:
            failed = f"a message of {len(str(e))} characters: {str(e)[:200]!r}"
    except Slow:
        outcome, failed = "slow", "too slow"
    except SilentChange as e:
        outcome, failed = "silent change", str(e)
    except Exception as e:
        where = traceback.extract_tb(e.__traceback__)[-1]
        ours = [f for f in traceback.extract_tb(e.__traceback__) if "/darn/" in f.filename]
        at = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else f"{where.filename}:{where.lineno}"
        outcome, failed = "traceback", f"{type(e).__name__} at {at}: {str(e)[:160]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
    took, peak = time.process_time() - started, _peak()
    if peak - held > MEMORY and not failed:
        failed = f"{(peak - held) >> 20:,} MB of memory"
    counts.outcomes[outcome] += 1
    counts.slowest, counts.peak_mb = max(counts.slowest, took), max(counts.peak_mb, peak / 2**20)
    if failed:
        counts.failures.append(f"{counts.name} {k}: {failed}")

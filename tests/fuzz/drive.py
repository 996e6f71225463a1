"""Runs a target many times and counts what came of it, in this process or in several."""

import contextlib
import functools
import io
import json
import os
import resource
import selectors
import shutil
import signal
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from darn.cli import _main
from darn.errors import DarnError

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 30  # of processor time for one file, or a command: other programs may be running
WAITING = 300  # seconds on the wall, for what waits for ever
MEMORY = 2 << 30  # bytes a process may hold; in the test suite, beyond what it held before
FILES = 10  # the least that a process is started for
CAP = 12 << 30  # what a bomb gets before the allocation fails
RENEWED = 2  # the exit status of a process that holds much of many files, such as programs: the next one goes on

Once = Callable[[np.random.Generator, Path], str]


class Slow(BaseException):
    """A file took too long; not an Exception, so that nothing takes it for a damaged file."""


class Clock:
    """The processor time of one file, or of the longest of the commands that it goes through."""

    longest = began = 0.0

    def start(self) -> None:
        self.longest, self.began = 0.0, _processor()
        self.command()

    def command(self) -> None:
        """The next one begins."""
        now = _processor()
        self.longest, self.began = max(self.longest, now - self.began), now
        signal.setitimer(signal.ITIMER_PROF, SECONDS)

    def stop(self) -> float:
        """The seconds."""
        self.command()
        signal.setitimer(signal.ITIMER_PROF, 0)
        return self.longest


clock = Clock()


class SilentChange(Exception):
    """A damaged file was taken for a good one and gave something else."""


@dataclass
class Result:
    """What came of one file."""

    k: int
    outcome: str  # refused, same, other, ...
    failed: str = ""  # a traceback, a silent change, too much memory or time
    seconds: float = 0.0  # of processor time, with that of child processes
    peak: int = 0  # bytes, of this process or the largest of its children


@dataclass
class Counts:
    """What came of a target's files."""

    name: str
    files: int = 0
    outcomes: Counter = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    peak_mb: float = 0.0
    slowest: float = 0.0
    seconds: float = 0.0  # of all processes together

    def add(self, result: Result) -> None:
        self.files += 1
        self.outcomes[result.outcome] += 1
        self.slowest, self.peak_mb = max(self.slowest, result.seconds), max(self.peak_mb, result.peak / 2**20)
        if result.failed:
            self.failures.append(f"{self.name} {result.k}: {result.failed}")

    def to_json(self) -> dict[str, Any]:
        return {
            "files": self.files,
            **dict(sorted(self.outcomes.items())),
            "failures": len(self.failures),
            "first_failures": sorted(self.failures, key=lambda f: int(f.partition(":")[0].split()[-1]))[:20],
            "peak_memory_mb": round(self.peak_mb),
            "slowest_seconds": round(self.slowest, 2),
            "seconds": round(self.seconds, 1),
        }


def drive(name: str, once: Once, folder: Path, count: int, seed: int) -> Counts:
    """Calls `once(rng, folder)` for each file in this process; it returns an outcome in one word, or raises.

    Args:
        name: of the target.
        once: makes one damaged file in the folder and opens it. A `DarnError` of one line means refused; any other
            exception is a failure.
        folder: an empty one, for the files.
        count: how many files.
        seed: of the first file; each has a generator of its own, so that a failure can be repeated alone.
    """
    counts, began = Counts(name), time.monotonic()
    _forget_peak()
    held = _peak()  # by tests that ran before
    with limits():
        for k in range(seed, seed + count):
            counts.add(_one(name, once, folder, k, held))
    counts.seconds = time.monotonic() - began
    return counts


@dataclass
class Target:
    """Files that are made and opened in one way."""

    name: str
    files: int
    make: Callable[[Path], Once]  # in a folder of its own
    together: bool = False  # whether one process takes all files


def shared(targets: list[Target], folder: Path, seed: int, jobs: int) -> Iterator[Counts]:
    """`drive` for all targets at once in `jobs` processes; the counts of each as soon as it is done.

    A file's generator follows from its number alone, so what comes of it does not depend on the number of processes.
    One that dies at a file is a failure, and another takes its place. They are forked, so this process must not have
    started JAX.
    """
    left, open_parts = deque(), Counter()
    for i, target in enumerate(targets):
        counts = Counts(target.name)
        parts = 1 if target.together else min(jobs, -(-target.files // FILES))
        for j in range(parts):
            numbers = list(range(seed + j, seed + target.files, parts))
            left.append(_Worker(target.name, target.make, folder / f"{i}" / f"{j}", numbers, counts))
        open_parts[target.name] = parts
    with selectors.DefaultSelector() as waiting:
        while left or waiting.get_map():
            while left and len(waiting.get_map()) < jobs:
                left.popleft().start(waiting)
            for key, _ in waiting.select(timeout=1):
                worker = key.data
                if not worker.read(waiting):
                    shutil.rmtree(worker.folder, ignore_errors=True)
                    open_parts[worker.name] -= 1
                    if not open_parts[worker.name]:
                        yield worker.counts
            for key in list(waiting.get_map().values()):
                key.data.check()


class _Worker:
    """A process that takes the files `numbers`, and sends a line for each."""

    def __init__(self, name: str, make: Callable[[Path], Once], folder: Path, numbers: list[int], counts: Counts):
        self.name, self.make, self.folder, self.numbers, self.counts = name, make, folder, numbers, counts

    def start(self, waiting: selectors.BaseSelector) -> None:
        self.began = self.heard = time.monotonic()
        self.text, (self.pipe, theirs) = b"", os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self.pipe)
            self._work(theirs)
        os.close(theirs)
        waiting.register(self.pipe, selectors.EVENT_READ, self)

    def _work(self, pipe: int) -> None:
        status = 1
        _main.CommandLine = functools.cache(_main.CommandLine)  # building the parser takes longer than most files
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                once = self.make(self.folder)
            with limits():
                for k in self.numbers:
                    os.write(pipe, json.dumps(asdict(_one(self.name, once, self.folder, k))).encode() + b"\n")
                    if _memory("VmRSS") > MEMORY // 2:
                        break
            status = 0 if k == self.numbers[-1] else RENEWED
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def read(self, waiting: selectors.BaseSelector) -> bool:
        """Whether more is to come."""
        more = os.read(self.pipe, 1 << 16)
        *lines, self.text = (self.text + more).split(b"\n")
        for line in lines:
            result = Result(**json.loads(line))
            assert result.k == self.numbers.pop(0)
            self.counts.add(result)
            self.heard = time.monotonic()
        if more:
            return True
        waiting.unregister(self.pipe)
        os.close(self.pipe)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if self.numbers and status == 1:  # whatever comes next would fail alike
            while self.numbers:
                self.counts.add(Result(self.numbers.pop(0), "not made", "the target could not be made"))
        self.counts.seconds += time.monotonic() - self.began
        if self.numbers and status != RENEWED:
            self.counts.add(Result(self.numbers.pop(0), "died", f"the process ended with {status}"))
        if self.numbers:
            self.start(waiting)
        return bool(self.numbers)

    def check(self) -> None:
        """Ends a process that hangs where no signal reaches Python."""
        if time.monotonic() - self.heard > 2 * WAITING:
            os.kill(self.pid, signal.SIGKILL)


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


def _one(name: str, once: Once, folder: Path, k: int, held: int = 0) -> Result:
    rng = np.random.default_rng([k, len(name)])
    _forget_peak()
    result, said = Result(k, "refused"), io.StringIO()
    clock.start()
    signal.alarm(WAITING)
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            result.outcome = once(rng, folder)
    except DarnError as e:
        if "\n" in str(e) or not str(e) or len(str(e)) > 1000:
            result.failed = f"a message of {len(str(e))} characters: {str(e)[:200]!r}"
    except Slow:
        result.outcome, result.failed = "slow", "too slow"
    except SilentChange as e:
        result.outcome, result.failed = "silent change", str(e)
    except Exception as e:
        where = traceback.extract_tb(e.__traceback__)[-1]
        ours = [f for f in traceback.extract_tb(e.__traceback__) if "/darn/" in f.filename]
        at = (
            f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
            if ours
            else f"{Path(where.filename).name}:{where.lineno}"
        )
        result.outcome, result.failed = "traceback", f"{type(e).__name__} at {at}: {str(e)[:160]}"
    finally:
        result.seconds = clock.stop()
        signal.alarm(0)
    result.peak = max(_peak() - held, 0)
    if not result.failed:
        if result.peak > MEMORY:
            result.failed = f"{result.peak >> 20:,} MB of memory"
        elif result.seconds > SECONDS:
            result.failed = f"{result.seconds:.0f} seconds"
        elif "out of memory" in said.getvalue():  # the sentence of a command that got no more
            result.failed = "out of memory"
    for place in (folder, folder.parent.parent, ROOT):  # where this machine keeps them is nobody's business
        result.failed = result.failed.replace(f"{place}/", "")
    return result


def _processor() -> float:
    return sum(os.times()[:4])


def _peak() -> int:
    """The most memory of this process since `_forget_peak`, or of any of its children, in bytes."""
    return max(_memory("VmHWM"), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)


def _memory(name: str) -> int:
    """A figure of this process, as the system counts it, in bytes."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith(name))


def _forget_peak() -> None:
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as f:
        f.write("5")

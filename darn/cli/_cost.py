"""What a large number of samples would take, said before it is paid."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from darn.errors import DarnError

TRIED = 100_000  # fewer rows than this are drawn without asking
LONG, BIG = 24 * 3600, 100e9  # seconds and bytes that only --large allows


def check_cost(args, model, ending: str, draw: Callable[[int], object]) -> None:
    """Refuses samples that do not fit on the disk, or take very long and were not asked for with --large.

    Args:
        args: of `darn sample`.
        model: to draw from.
        ending: of the output.
        draw: draws some rows, to measure the time.
    """
    if args.n <= TRIED:
        return
    from darn.batching import KEYS
    from darn.inference.sampling import CHUNK

    draw(CHUNK)  # compiles the program
    began = time.perf_counter()
    draw(CHUNK)
    seconds = (time.perf_counter() - began) * args.n / CHUNK
    extra = (10 if args.log_joint else 0) + (sum(model.n_h) if args.hidden else 0)
    size = args.n * (model.n_x * (2 if ending == "csv" else 1) + extra)
    takes = f"{args.n:,} samples would take about {spoken_time(seconds)} and {spoken_bytes(size)}"
    if args.n > KEYS:
        raise DarnError(f"{takes}, and one seed has only {KEYS:,} different ones: ask for fewer, with several seeds")
    free = None if args.csv else shutil.disk_usage(_existing(args.out)).free
    if free is not None and size > free:
        raise DarnError(f"{takes}, but there are {spoken_bytes(free)} left on the disk: ask for fewer")
    if not args.large and (seconds > LONG or size > BIG):
        raise DarnError(f"{takes}: ask for fewer, or add --large")


def _existing(path: str) -> Path:
    """The nearest folder above a file that exists already."""
    return next(p for p in Path(path).absolute().parents if p.is_dir())


def spoken_time(seconds: float) -> str:
    for size, name in ((365.25 * 86400, "years"), (86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {name}"
    return f"{seconds:.0f} seconds"


def spoken_bytes(size: float) -> str:
    for power, name in ((15, "PB"), (12, "TB"), (9, "GB"), (6, "MB")):
        if size >= 10**power:
            return f"{size / 10**power:,.1f} {name}"
    return f"{size:,.0f} bytes"

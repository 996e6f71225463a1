"""Ways of doing one piece of work, timed side by side, and the record of where and with what."""

import math
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import jax

from benchmarks.limits import Limits, Needs
from darn.runs.provenance import commit

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("jax", "jaxlib", "equinox", "optax", "torch", "numpy")


@dataclass(frozen=True)
class Way:
    """One way of doing the work: `run(n)` does it n times over and returns when the device is done."""

    name: str
    run: Callable[[int], object]
    amount: float  # units of work in one time
    optional: bool = False  # may fail on some machines: then it is left out, with the reason


@dataclass(frozen=True)
class Comparison:
    """Our way and the others, over the same work."""

    name: str
    unit: str
    ours: Way
    others: Sequence[Way]
    skipped: dict[str, str] = field(default_factory=dict)  # way -> why it is not among them
    sizes: dict = field(default_factory=dict)
    needs: Needs = field(default_factory=Needs)  # of one unit
    parts: Sequence[Sequence[str]] = ()  # of the work: for each, the names of ways to do it alone; the fastest counts


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    repeats: int = 5
    seconds: float = 1.0  # of one repeat, at the least


FULL, QUICK = Effort(), Effort(repeats=2, seconds=0.02)


def timed(way: Way, n: int) -> float:
    """Seconds for n times."""
    start = time.perf_counter()
    way.run(n)
    return time.perf_counter() - start


def calibrate(way: Way, seconds: float) -> int:
    """How many times fill a repeat; the runs it takes to find out are the warm-up."""
    n = 1
    while (took := timed(way, n)) < seconds:
        n = math.ceil(n * min(max(1.2 * seconds / took, 1.5), 100))
    return n


def repeat(way: Way, n: int, seconds: float) -> tuple[int, float]:
    """(times done, seconds) of one repeat: n times, and again n if a slow calibration made n too small."""
    done, took = n, timed(way, n)
    while took < seconds:
        done, took = done + n, took + timed(way, n)
    return done, took


def faster(name: str, a: Way, b: Way) -> Way:
    """The better of two ways to do the same, by two warm runs each on first use."""
    chosen: list[Way] = []

    def run(n: int):
        if not chosen:
            for way in (a, b):
                way.run(1)
            chosen.append(min(a, b, key=lambda way: min(timed(way, 1), timed(way, 1))))
        return chosen[0].run(n)

    return Way(name, run, a.amount)


def compare(work: Comparison, effort: Effort) -> dict:
    """Warms every way up, then times them in turn (ours, other, ours, ...): medians, ratios, raw repeats."""
    ready, skipped = [], dict(work.skipped)
    for way in (work.ours, *work.others):
        try:
            first = timed(way, 1)  # compilation and all
            n = calibrate(way, effort.seconds)
        except Exception as error:
            if not way.optional:
                raise
            skipped[way.name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
            continue
        ready.append((way, {"amount": way.amount, "first_call_s": first, "n": n, "times": [], "seconds": []}))
    for _ in range(effort.repeats):
        for way, found in ready:
            done, took = repeat(way, found["n"], effort.seconds)
            found["times"].append(done)
            found["seconds"].append(took)
    for way, found in ready:
        found["rates"] = [n * way.amount / s for n, s in zip(found["times"], found["seconds"])]
        found["rate"] = statistics.median(found["rates"])
    ways = {way.name: found for way, found in ready}
    ours = ways[work.ours.name]
    for way in ways.values():
        ratios = [a / b for a, b in zip(ours["rates"], way["rates"])]
        way["ours_is_times_faster"] = ours["rate"] / way["rate"]
        way["ours_is_times_faster_range"] = [min(ratios), max(ratios)]
    result = {
        "name": work.name,
        "unit": work.unit,
        "sizes": work.sizes,
        "needs": vars(work.needs),
        "ours": work.ours.name,
        "ways": ways,
        "skipped": skipped,
    }
    if work.parts:  # one after the other, with nothing between them
        seconds = [min(1 / ways[name]["rate"] for name in part if name in ways) for part in work.parts]
        result["parts"] = {"fastest": dict(zip([part[0] for part in work.parts], seconds)), "rate": 1 / sum(seconds)}
    return result


def significant(value: float) -> str:
    """Three digits, thousands apart."""
    digits = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def table(results: list[dict], limits: Limits | None = None) -> str:
    """One Markdown table: a line for every other way."""
    lines = ["| what | unit | ours | of the limit | instead | instead's | ratio |", "|---|---|---:|---:|---|---:|---:|"]
    for result in results:
        ours = result["ways"][result["ours"]]
        share = None if limits is None else limits.share(ours["rate"], Needs(**result["needs"]))
        used = "" if share is None else f"{100 * share.value:.3g}% of {share.limit}"
        what = f"| {result['name']} | {result['unit']} | {significant(ours['rate'])} | {used} |"
        for name, way in result["ways"].items():
            if way is not ours:
                ratio = significant(way["ours_is_times_faster"])
                lines.append(f"{what} {name} | {significant(way['rate'])} | {ratio} |")
        if "parts" in result:
            rate = result["parts"]["rate"]
            lines.append(
                f"{what} (these parts, one after the other) | {significant(rate)} | {ours['rate'] / rate:.2f} |"
            )
        lines += [f"{what} {name} | skipped: {why} | |" for name, why in result["skipped"].items()]
    return "\n".join(lines)


def torch_module():
    """(torch, None), or (None, why it is of no use here)."""
    try:
        import torch
    except ImportError:
        return None, "torch is not installed"
    if jax.default_backend() == "gpu" and not torch.cuda.is_available():
        return None, "this torch does not see the GPU"
    return torch, None


def device_name() -> str:
    """cpu, or the accelerator's name, as part of a file name."""
    if jax.default_backend() == "cpu":
        return "cpu"
    return re.sub(r"[^a-z0-9]+", "-", jax.devices()[0].device_kind.lower()).strip("-")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def environment(command: str, seed: int) -> dict:
    """Where, when and with which versions the numbers were measured; files by name, since folders differ."""
    torch, _ = torch_module()
    return {
        "command": re.sub(r"(?<=\s)/\S*/", "", command),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "device": {
            "backend": jax.default_backend(),
            "kind": jax.devices()[0].device_kind,
            "torch": None if torch is None else "cuda" if jax.default_backend() == "gpu" else "cpu",
            "machine": platform.machine(),
        },
        "threads": {
            "cpu_count": os.cpu_count(),
            "usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "torch": None if torch is None else torch.get_num_threads(),
            "load_average": os.getloadavg() if hasattr(os, "getloadavg") else None,
        },
        "versions": {"python": platform.python_version(), **{p: _version(p) for p in PACKAGES}},
    }

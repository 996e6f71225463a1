"""The long run: `make fuzz`, or `python -m fuzz --models 2500 --only models` with tests/ on the path."""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from platform import machine

os.environ.setdefault("JAX_PLATFORMS", "cpu")
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
os.environ.setdefault("XLA_FLAGS", QUICK)  # most programs run once

from darn.cache import use_cache  # noqa: E402
from darn.runs.provenance import commit, versions  # noqa: E402
from fuzz import drive, readers  # noqa: E402
from fuzz.drive import ROOT  # noqa: E402


def targets(args):
    """(name, how many files, the function that makes the target in a folder)."""
    from fuzz import trips
    from fuzz.commands import Commands
    from fuzz.compressed import Compressed
    from fuzz.folders import Folders
    from fuzz.kills import AIMED, WAYS, Kills
    from fuzz.models import Models
    from fuzz.packs import Packs
    from fuzz.tables import Tables

    yield "models", args.models, Models
    yield "drn", args.drn, Compressed
    yield "folders", args.folders, Folders
    yield "packs", args.packs, Packs
    for ending in readers.FILES:
        yield f"reader {ending}", args.readers, lambda _, ending=ending: readers.Reader(ending)
    for way in WAYS:
        count = args.kills if way == "random" else -(-args.kills // (AIMED if way.startswith("aimed") else 2.5))
        yield f"kill {way}", int(count), partial(Kills, way)
    yield "kill commands", args.kills, Commands
    yield "trips of tables", args.tables, lambda _: trips.table
    yield "tables", args.commands, Tables
    yield "trips of stacks", args.stacks, lambda _: trips.stack
    yield "bombs", len(readers.BOMBS), readers.Bombs


def table(rows: dict[str, dict]) -> str:
    """The counts as text."""
    lines = [f"{'target':20}{'files':>8}{'refused':>9}{'failures':>10}{'peak MB':>9}{'slowest s':>11}{'seconds':>9}"]
    for name, r in rows.items():
        lines.append(
            f"{name:20}{r['files']:8}{r.get('refused', 0):9}{r['failures']:10}{r['peak_memory_mb']:9}"
            f"{r['slowest_seconds']:11}{r['seconds']:9}"
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m fuzz", description=__doc__)
    parser.add_argument("--models", type=int, default=2500, help="model files")
    parser.add_argument("--drn", type=int, default=2500, help="compressed files")
    parser.add_argument("--folders", type=int, default=2500, help="run folders")
    parser.add_argument("--packs", type=int, default=2500, help="packed sets")
    parser.add_argument("--readers", type=int, default=300, help="files of each type that is read")
    parser.add_argument(
        "--kills", type=int, default=50, help="kills at each kind of write; three times as many at any moment"
    )
    parser.add_argument("--tables", type=int, default=1000, help="random tables, there and back")
    parser.add_argument("--commands", type=int, default=100, help="random tables, through every command")
    parser.add_argument("--stacks", type=int, default=200, help="random stacks, with fifty sets of rows each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--only", default="", help="targets whose name begins so")
    parser.add_argument("--out", type=Path, help="default: results/fuzz/fuzz.json, or named after --only")
    args = parser.parse_args(argv)
    rows: dict[str, dict] = {}
    out = args.out or ROOT / "results" / "fuzz" / f"{args.only.replace(' ', '-') or 'fuzz'}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    given = {k: v for k, v in vars(args).items() if v != parser.get_default(k) and k != "out"}
    command = " ".join(["python -m fuzz", *(f"--{k} {v}" for k, v in given.items())])
    record = {"command": command, "seed": args.seed, "commit": commit()}
    record |= {"versions": versions(), "device": f"{machine()} CPU, {os.cpu_count()} cores", "targets": rows}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DARN_CACHE"] = f"{folder}/cache"  # of compiled programs, for all processes
        use_cache()
        for i, (name, count, make) in enumerate(targets(args)):
            if not name.startswith(args.only) or not count:
                continue
            counts = drive.shared(
                name, make, Path(folder, str(i)), count, args.seed, 1 if name == "bombs" else args.workers
            )
            rows[name] = counts.to_json()
            out.write_text(json.dumps(record, indent=1) + "\n")
            shutil.rmtree(Path(folder, str(i)), ignore_errors=True)
            print(f"{name}: {count} files in {counts.seconds:.0f} s", file=sys.stderr, flush=True)
            for failure, times in Counter(f.partition(": ")[2] for f in counts.failures).most_common(20):
                print(f"  {times} x {failure}", file=sys.stderr, flush=True)
    print(table(rows))
    return int(any(r["failures"] for r in rows.values()))


if __name__ == "__main__":
    sys.exit(main())

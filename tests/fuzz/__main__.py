"""The long run: `make fuzz`, or `python -m fuzz --models 2500 --only models` with tests/ on the path."""

import argparse
import json
import os
import shlex
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from importlib import import_module
from pathlib import Path
from platform import machine

os.environ.setdefault("JAX_PLATFORMS", "cpu")
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
os.environ.setdefault("XLA_FLAGS", QUICK)  # most programs run once

from darn.cache import use_cache  # noqa: E402
from darn.runs.provenance import commit, versions  # noqa: E402
from fuzz import drive, readers  # noqa: E402
from fuzz.drive import ROOT, Target  # noqa: E402


def targets(args) -> list[Target]:
    """What the arguments ask for, slow ones first."""
    from fuzz import trips
    from fuzz.commands import Commands
    from fuzz.compressed import Compressed
    from fuzz.folders import Folders
    from fuzz.kills import AIMED, WAYS, Kills
    from fuzz.models import Models
    from fuzz.packs import Packs
    from fuzz.schemas import Schemas

    kills = {way: -(-args.kills // (AIMED if way.startswith("aimed") else 2.5)) for way in WAYS}
    kills["random"] = args.kills
    found = [
        Target("bombs", len(readers.BOMBS), readers.Bombs, together=True),
        Target("trips of stacks", args.stacks, lambda _: trips.stack),
        Target("tables", args.commands, lambda folder: import_module("fuzz.tables").Tables(folder)),  # needs polars
        Target("kill commands", args.kills, Commands),
        *(Target(f"kill {way}", int(count), partial(Kills, way)) for way, count in kills.items()),
        Target("folders", args.folders, Folders),
        Target("drn", args.drn, Compressed),
        Target("models", args.models, Models),
        Target("packs", args.packs, Packs),
        Target("schemas", args.schemas, lambda _: Schemas()),
        Target("trips of tables", args.tables, lambda _: trips.table),
        *(Target(f"reader {e}", args.readers, lambda _, e=e: readers.Reader(e)) for e in readers.FILES),
    ]
    return [target for target in found if target.name.startswith(tuple(args.only)) and target.files]


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
    parser.add_argument("--schemas", type=int, default=2500, help="schemas of tables")
    parser.add_argument("--readers", type=int, default=300, help="files of each type that is read")
    parser.add_argument(
        "--kills", type=int, default=50, help="kills at each kind of write; three times as many at any moment"
    )
    parser.add_argument("--tables", type=int, default=1000, help="random tables, there and back")
    parser.add_argument("--commands", type=int, default=100, help="random tables, through every command")
    parser.add_argument("--stacks", type=int, default=200, help="random stacks, with fifty sets of rows each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--only", nargs="+", default=[""], help="targets whose names begin so")
    parser.add_argument("--out", type=Path, help="default: results/fuzz/fuzz.json, or named after --only")
    args = parser.parse_args(argv)
    rows: dict[str, dict] = {}
    began = time.monotonic()
    out = args.out or ROOT / "results" / "fuzz" / f"{'-'.join(args.only).replace(' ', '-') or 'fuzz'}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    given = {k: v for k, v in vars(args).items() if v != parser.get_default(k) and k != "out"}
    words = {k: shlex.join(v) if isinstance(v, list) else v for k, v in given.items()}
    command = " ".join(["python -m fuzz", *(f"--{k} {v}" for k, v in words.items())])
    record = {"command": command, "seed": args.seed, "commit": commit()}
    record |= {"versions": versions(), "device": f"{machine()} CPU, {os.cpu_count()} cores"}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DARN_CACHE"] = f"{folder}/cache"  # of compiled programs, for all processes
        use_cache()
        wanted = targets(args)
        for counts in drive.shared(wanted, Path(folder), args.seed, args.jobs):
            rows[counts.name] = counts.to_json()
            record["targets"] = {t.name: rows[t.name] for t in wanted if t.name in rows}
            record["seconds"] = round(time.monotonic() - began)
            out.write_text(json.dumps(record, indent=1) + "\n")
            print(f"{counts.name}: {counts.files} files", file=sys.stderr, flush=True)
            for failure, times in Counter(f.partition(": ")[2] for f in counts.failures).most_common(20):
                print(f"  {times} x {failure}", file=sys.stderr, flush=True)
    print(table(record["targets"]))
    return int(any(r["failures"] for r in rows.values()))


if __name__ == "__main__":
    sys.exit(main())

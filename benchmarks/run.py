"""Runs the comparisons: one table to read, one JSON to keep."""

import argparse
import json
import sys
from pathlib import Path

from benchmarks import sampling, scoring, training
from benchmarks.limits import Limits
from benchmarks.measure import FULL, QUICK, ROOT, compare, device_name, environment, table, torch_module

ROWS = {
    "training": training.comparisons,
    "sampling": sampling.comparisons,
    "exact": scoring.exact,
    "importance": scoring.importance,
    "nade": scoring.nade,
}


def main(argv: list[str] | None = None) -> dict:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument("--out", type=Path, help="where the JSON goes; default: results/bench/<device>.json")
    parser.add_argument("--quick", action="store_true", help="tiny models, seconds in all: does it run?")
    parser.add_argument("--only", choices=ROWS, help="one row; its file is named after it")
    parser.add_argument("--name", default="", help="only comparisons whose name has this in it; give --out, too")
    parser.add_argument("--check", action="store_true", help="compare the PyTorch twin with darn, and stop")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    if args.check:
        return _check(args.seed)
    out = args.out or _default_out(args.only, args.quick)
    record = environment(" ".join(["python -m benchmarks", *argv]), args.seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    effort, limits = QUICK if args.quick else FULL, Limits.measured(quick=args.quick)
    record |= {"effort": vars(effort), "limits": vars(limits), "rows": []}
    for name in [args.only] if args.only else ROWS:
        for work in (w for w in ROWS[name](args.quick, args.seed) if args.name in w.name):
            print(f"{work.name} ...", file=sys.stderr, flush=True)
            record["rows"].append(compare(work, effort))
            out.write_text(json.dumps(record, indent=1) + "\n")  # row by row: an interrupted run is not lost
    print(table(record["rows"], limits))
    return record


def _default_out(only: str | None, quick: bool) -> Path:
    # A partial run must not take the place of a full one.
    parts = [device_name(), *([only] if only else []), *(["quick"] if quick else [])]
    return ROOT / "results" / "bench" / ("-".join(parts) + ".json")


def _check(seed: int) -> dict:
    torch, why = torch_module()
    if torch is None:
        sys.exit(f"nothing to check: {why}")
    from benchmarks.torch_twin import check

    worst = check(seed=seed)
    print("largest relative differences, PyTorch twin against darn:", worst)
    return worst

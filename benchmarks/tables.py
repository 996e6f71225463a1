"""Synthetic rows of raw tables with nothing tuned: darn beside SDV's GaussianCopula, TVAE and CTGAN.

python -m benchmarks.tables --work DIR                   darn, and whatever of SDV is in DIR already
python -m benchmarks.tables --work DIR --sdv PYTHON      SDV as well, in the environment of that interpreter

Rows are kept in DIR with the seconds they took, so that a slow generator runs once; `--again` makes darn's anew. What
is measured on rows of SDV that are not in DIR stays in the record as it is, with where it came from; likewise of sets
that are not asked for.
"""

import argparse
import csv
import gzip
import io
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn import datasets

from benchmarks.measure import ROOT, environment
from darn.data import Table, data_dir, read_table
from darn.fidelity import align, associations, evaluate, marginals, two_sample_auc

# set: (training rows, test rows, target, columns left out). SDV takes the time of day for an identifier and writes
# texts of its own, which would tell its rows apart at a glance: so nobody is judged by it.
SETS = {
    "adult": (10_000, 10_000, "class", ()),
    "occupancy": (7_000, None, "Room_Occupancy_Count", ("Time",)),
    "breast_cancer": (400, None, "target", ()),
    "diabetes": (300, None, "target", ()),
}
SKLEARN = {"breast_cancer": {}, "diabetes": {"scaled": False}}
SDV = ("GaussianCopula", "TVAE", "CTGAN")


def load(name: str) -> tuple[list[str], list[list[str]]]:
    """(column names, rows) of a set, as texts."""
    if name in SKLEARN:
        found = getattr(datasets, f"load_{name}")(**SKLEARN[name])
        rows = [[f"{v:.15g}" for v in row] for row in np.column_stack([found.data, found.target]).tolist()]
        return [*found.feature_names, "target"], rows
    with gzip.open(data_dir() / "tables" / f"{name}.csv.gz", "rt", newline="") as f:
        head, *rows = csv.reader(io.StringIO(f.read()))
    return head, rows


def split(name: str, work: Path) -> tuple[Path, Path]:
    """Writes the training and the test rows of a set, in the division of the data's README."""
    n, m, _, _ = SETS[name]
    head, rows = load(name)
    order = np.random.default_rng(0).permutation(len(rows))
    paths = work / f"{name}-train.csv", work / f"{name}-test.csv"
    for path, index in zip(paths, (order[:n], order[n:] if m is None else order[n : n + m])):
        with open(path, "w", newline="", encoding="utf-8") as f:
            csv.writer(f, lineterminator="\n").writerows([head, *(rows[i] for i in index)])
    return paths


def run_darn(train: Path, out: Path, left_out) -> dict:
    """Rows by `darn train --categorical auto` and `darn sample`, as a user would type them."""
    folder = out.with_suffix("")
    drop = [word for name in left_out for word in ("--drop", name)]
    began = time.monotonic()
    _darn("train", train, "--categorical", "auto", *drop, "--quiet", "--out", folder)
    fitted = time.monotonic()
    rows = len(read_table(train))
    _darn("sample", folder, "-n", rows, "--out", out)
    return {"seconds_fit": fitted - began, "seconds_sample": time.monotonic() - fitted}


def _darn(*words) -> None:
    subprocess.run([sys.executable, "-m", "darn", *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def run_sdv(python: str, kind: str, train: Path, out: Path) -> dict:
    """Rows by SDV, in its own environment."""
    script = Path(__file__).with_name("sdv_rows.py")
    words = [python, str(script), kind, str(train), str(out)]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def measure(train: Table, test: Table, rows: Table, target: str) -> dict:
    """The classifier and the total variations against test rows; predictions and privacy with both kinds of rows."""
    beside = align({"real": test, "synthetic": rows})
    pairs = associations(beside)
    found = evaluate(train, rows, held_out=test, target=target)
    assert found.utility is not None
    return {
        "auc": two_sample_auc(beside),
        "marginal_tv": float(np.mean([m.tv for m in marginals(beside)])),
        "pairwise_tv": float(np.mean([a.tv for a in pairs])),
        "pairwise_chance": float(np.mean([a.chance for a in pairs])),
        "score": found.utility.score,
        "trained_on_synthetic": found.utility.synthetic,
        "trained_on_real": found.utility.real,
        "membership_auc": found.privacy.membership_auc,
        "nearer_than_held_out": found.privacy.closer,
    }


def without(table: Table, names) -> Table:
    kept = [i for i, name in enumerate(table.names) if name not in names]
    return replace(table, names=tuple(table.names[i] for i in kept), cells=table.cells[:, kept])


def earlier(path: Path) -> dict[tuple[str, str], list[dict]]:
    """The rows of an earlier record by set and generator, each with the provenance of its run."""
    if not path.exists():
        return {}
    made = json.loads(path.read_text())
    rows = made.pop("rows")
    return {(row["set"], row["rows_by"]): [{"made": made} | row] for row in rows}


def main(argv: list[str] | None = None) -> dict:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser("python -m benchmarks.tables", description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="where rows are kept")
    parser.add_argument("--sdv", metavar="PYTHON", help="an interpreter that has SDV")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--again", action="store_true", help="train darn again although its rows are there")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench" / "tables.json")
    args = parser.parse_args(argv)
    args.work.mkdir(parents=True, exist_ok=True)
    record = environment("python -m benchmarks.tables", 0) | {"rows": []}
    before = earlier(args.out)
    for name in SETS:
        if name not in args.sets:
            record["rows"] += [row for (of, _), rows in before.items() if of == name for row in rows]
            continue
        _, _, target, left_out = SETS[name]
        paths = split(name, args.work)
        train, test = (without(read_table(p), left_out) for p in paths)
        for kind in ("real", "darn", *SDV):
            out, took = args.work / f"{name}-{kind}.csv", args.work / f"{name}-{kind}.json"
            cached = out.exists() and took.exists() and took.stat().st_size > 0
            if kind == "darn" and (args.again or not cached):
                made = args.work / f"{name}-{kind}-{os.getpid()}.csv"
                took.write_text(json.dumps(run_darn(paths[0], made, left_out)))
                made.replace(out)
            elif kind in SDV and not cached:
                if args.sdv is None:
                    record["rows"] += before.get((name, kind), [])
                    print(f"{name}, {kind}: as recorded before, if it was; anew with --sdv", flush=True)
                    continue
                took.write_text(json.dumps(run_sdv(args.sdv, kind, paths[0], out)))
            rows = train if kind == "real" else without(read_table(out), left_out)
            seconds = {} if kind == "real" else json.loads(took.read_text())
            found = {"set": name, "rows_by": kind, "target": target, "left_out": left_out}
            record["rows"].append(found | measure(train, test, rows, target) | seconds)
            print(json.dumps(record["rows"][-1]), flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(record, indent=1) + "\n")
    return record


if __name__ == "__main__":
    main()

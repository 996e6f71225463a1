"""What `darn.DARN()` reaches with nothing set, beside the mixture of Bernoullis and the tuned row of the same data.

python -m benchmarks.defaults                      test rows of seven sets, into results/bench/defaults.json
python -m benchmarks.defaults --split valid ...    the rows to choose constants by: of dna, mushrooms, ocr_letters, web
python -m benchmarks.defaults --join A B           records of some of the sets, as one
"""

import argparse
import ast
import json
import sys
import time
from pathlib import Path

from benchmarks.measure import ROOT, environment
from darn import DARN
from darn.data import load

SETS = ("adult", "connect4", "dna", "mushrooms", "nips", "ocr_letters", "web")


def measure(name: str, split: str, fields: dict, seed: int = 0) -> dict:
    """Fits the training rows of a set and scores those of another split."""
    splits = load(name)
    X = splits.train.unpack()
    began, before = time.monotonic(), time.process_time()
    model = DARN(random_state=seed, **fields).fit(X)
    fitted, spent = time.monotonic(), time.process_time() - before
    rows = getattr(splits, split).unpack()
    found = {
        "set": name,
        "rows": len(X),
        "columns": X.shape[1],
        "nll": -model.score(rows),
        "bound_held_out": model.bound_,
        "seconds_fit": fitted - began,
        "cpu_seconds_fit": spent,  # of all cores: on two, a machine without other work takes at least half of this
        "seconds_score": time.monotonic() - fitted,
        "search": None if model.search_ is None else {k: model.search_[k] for k in ("candidates", "chosen", "gain")},
    }
    return found | (beside(name, found["nll"]) if split == "test" else {})


def beside(name: str, nll: float) -> dict:
    """The rows of the table over the same test rows, and by how much this one is above the best of ours."""
    table = ROOT / "results" / "table1"
    read = lambda row: json.loads((table / f"{row}.json").read_text())["nll"]  # noqa: E731
    mixture, tuned = read(f"mob-{name}"), min(read(p.stem) for p in table.glob(f"{name}*.json"))
    return {"mixture": mixture, "tuned": tuned, "above_tuned": nll / tuned - 1}


def join(paths: list[Path]) -> dict:
    """The rows of several runs, each with the provenance of its run."""
    rows = {}
    for path in paths:
        made = json.loads(path.read_text())
        for row in made.pop("rows"):
            if row["set"] in rows:
                raise ValueError(f"{row['set']} is in two of the records")
            rows[row["set"]] = {"made": made} | row  # one that has been joined before keeps its own
    return {"rows": [rows[name] for name in sorted(rows)]}


def main(argv: list[str] | None = None) -> dict:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser("python -m benchmarks.defaults", description=__doc__)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--split", choices=("valid", "test"), default="test")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="parameters of the estimator")
    parser.add_argument("--join", nargs="+", type=Path, help="join the records of several runs, each over other sets")
    parser.add_argument("--out", type=Path, help="default, for the whole run on test rows: results/bench/defaults.json")
    args = parser.parse_args(argv)
    if args.out is None:
        if args.split != "test" or tuple(args.sets) != SETS or args.set:
            parser.error("say where to with --out: only the whole run on test rows goes into results/")
        args.out = ROOT / "results" / "bench" / "defaults.json"
    if args.join:
        record = join(args.join)
        args.out.write_text(json.dumps(record, indent=1) + "\n")
        return record
    fields = {k: ast.literal_eval(v) for k, v in (word.split("=", 1) for word in args.set)}
    record = environment(" ".join(["python -m benchmarks.defaults", *argv]), 0)
    record |= {"split": args.split, "fields": fields, "rows": []}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    for name in args.sets:
        record["rows"].append(measure(name, args.split, fields))
        print(json.dumps(record["rows"][-1]), flush=True)
        args.out.write_text(json.dumps(record, indent=1) + "\n")
    return record


if __name__ == "__main__":
    main()

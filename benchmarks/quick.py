"""The quick figures of the committed models, computed again: each beside the one stored in its row.

python -m benchmarks.quick                         all of results/models, one at a time; hours on a CPU
python -m benchmarks.quick adult dna --limit 60    some of them, each for at most a minute of processor time

The record, results/bench/quick.json, is written after every model. Its other models stay in it, each with the commit
that it was computed on.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measure import ROOT, environment
from darn.paper.results import quick_of, write

MODELS = ROOT / "results" / "models"
OUT = ROOT / "results" / "bench" / "quick.json"
NEAR = 1e-4  # nats between devices and versions
WHEN = ("commit", "date")


def again(name: str, limit: int) -> dict:
    """One model's figure, as `darn eval MODEL --quick` gives it in a process of its own."""
    path = MODELS / f"{name}.safetensors"
    stored = quick_of(path)
    if stored is None:
        return {"model": name, "failed": "no figure is stored"}
    command = ["sh", "-c", f'ulimit -t {limit}; exec "$@"', "sh"]
    command += [sys.executable, "-m", "darn", "eval", str(path), "--quick", "--json"]
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    row = {"model": name, "stored": stored["nll"], "cpu_seconds": spent, "seconds": time.monotonic() - began}
    if done.returncode < 0:
        return row | {"failed": f"took more than {limit} s of processor time"}
    if done.returncode:
        return row | {"failed": done.stderr.strip().splitlines()[-1]}
    found = json.loads(done.stdout)["nll"]
    return row | {"found": found, "difference": found - stored["nll"], "near": abs(found - stored["nll"]) <= NEAR}


def line(row: dict) -> str:
    """A row of the record in words."""
    if "failed" in row:
        return f"{row['model']:22} {row['failed']}"
    said = "" if row["near"] else f"  more than {NEAR:g} apart"
    found = f"{row['stored']:10.4f} stored, {row['found']:10.4f} now, {row['difference']:+.1e}"
    return f"{row['model']:22} {found}, {row['cpu_seconds']:.0f} s of processor time{said}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quick", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="names of results/models; default: all")
    parser.add_argument("--limit", type=int, default=3600, help="seconds of processor time for one model")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args(argv)
    names = args.models or sorted(path.stem for path in MODELS.glob("*.safetensors"))
    words = [*args.models, "--limit", str(args.limit)]
    made = environment(f"python -m benchmarks.quick {' '.join(words)}", seed=0)
    rows: dict[str, dict] = {}
    if args.out.exists():
        before = json.loads(args.out.read_text())
        own = {k: before[k] for k in WHEN}
        rows = {r["model"]: own | r for r in before["rows"]}
    for name in names:
        rows[name] = again(name, args.limit) | {k: made[k] for k in WHEN}
        print(line(rows[name]), flush=True)
        write(args.out, made | {"near": NEAR, "rows": [rows[k] for k in sorted(rows)]})
    near = sum(r.get("near", False) for r in rows.values())
    print(f"{near} of {len(rows)} within {NEAR:g} nats")
    return 0 if all("failed" in r or r["near"] for r in rows.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""What a person waits for: whole commands, each in a process of its own, from its start to its end.

python -m benchmarks.start [--folder F]     results/bench/start.json; F keeps the trained models between calls

Each command is timed with the cache of compiled programs as an earlier call has left it (`second`), with an empty one
(`first`) and without one (`uncached`), all in turn. Python keeps its bytecode, as it does by default.
Rows of other commands stay in the record.
"""

import argparse
import csv
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.measure import ROOT, environment
from darn.paper.results import write

LONG = ("--samples", "2000", "--repeats", "5")  # the same figure by many samples of every row
TRAINED = {
    "demo": ("digits-ours",),
    "mixed": ("mixed.csv", "--categorical", "auto", "--n_h", "32", "--epochs", "30"),
    "pixels": ("pixels.csv", "--categorical", "auto", "--visible", "factorial", "--n_h", "64", "--n_d", "100"),
}
COMMANDS = {  # the words, and how many seconds the second start may take
    "eval": (("eval", "demo", "--json"), 4.0),
    "sample": (("sample", "demo", "-n", "100", "--out", "rows.png"), 1.5),
    "report": (("report", "demo", "--out", "report.html"), 8.0),
    "table": (("eval", "mixed", "mixed.csv", "--json"), 6.0),
    "hard table": (("eval", "pixels", "pixels.csv", "--json"), 6.0),
}


def mixed(path: Path, rows: int = 1500) -> None:
    """A table of numbers, categories, words and dates that depend on each other."""
    rng = np.random.default_rng(0)
    kind, chance = rng.integers(4, size=rows), rng.random(rows)
    near = (kind + rng.choice(3, rows, p=[0.7, 0.2, 0.1])) % 5
    size = rng.lognormal(1 + 0.3 * kind, 0.4)
    weight = size**1.5 * rng.lognormal(0, 0.1, rows)
    price = 3 * weight + 10 * kind + rng.normal(0, 2, rows)
    columns = {
        "kind": np.array(list("abcd"))[kind],
        "size": np.round(size, 2),
        "weight": np.round(weight, 2),
        "colour": np.array(["red", "green", "blue", "black", "white"])[near],
        "town": np.array([f"town {i}" for i in range(12)])[rng.integers(12, size=rows)],
        "day": np.datetime64("2020-01-01") + rng.integers(0, 1500, rows),
        "price": np.round(price, 2),
        "sold": np.where(chance < 1 / (1 + np.exp((40 - price) / 10)), "yes", "no"),
    }
    table(path, list(columns), zip(*columns.values()))


def pixels(path: Path, rows: int = 1500) -> None:
    """Scikit-learn's digits as a table of grey values, a column for each pixel that is not always white."""
    from sklearn.datasets import load_digits

    grey = load_digits(return_X_y=True)[0][:rows].astype(int)
    seen = np.flatnonzero(grey.std(axis=0))
    table(path, [f"p{i}" for i in seen], grey[:, seen])


def table(path: Path, names: list[str], rows) -> None:
    with path.open("w", newline="") as f:
        out = csv.writer(f)
        out.writerow(names)
        out.writerows(rows)


class Starts:
    """Processes of `darn` with caches of their own, in one folder."""

    def __init__(self, folder: Path):
        self.folder, self.cache = folder, folder / "cache"
        # The tests' and some machines' settings keep Python from storing its bytecode: nobody's own start is like that.
        plain = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        more = {"PYTHONPATH": path, "PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "DARN_CACHE": str(self.cache)}
        self.variables = plain | more

    def run(self, *words: str, cached: bool = True) -> tuple[float, float, str]:
        """(seconds, seconds of all processors, what it printed)."""
        variables = self.variables | ({} if cached else {"DARN_CACHE": "off"})
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "darn", *words], cwd=self.folder, env=variables, capture_output=True, text=True
        )
        seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise RuntimeError(f"darn {' '.join(words)}: {done.stderr.strip()}")
        spent = sum(getattr(after, k) - getattr(before, k) for k in ("ru_utime", "ru_stime"))
        return seconds, spent, done.stdout

    def forget(self) -> None:
        shutil.rmtree(self.cache, ignore_errors=True)

    def prepare(self, tiny: bool) -> None:
        """Makes the tables, models and long figures that are not there yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, words in TRAINED.items():
            for make in (mixed, pixels):
                if f"{make.__name__}.csv" in words and not (self.folder / words[0]).exists():
                    make(self.folder / words[0])
            if not (self.folder / name).exists():
                self.run("train", *words, "--out", name, "--quiet", *(["--tiny"] if tiny else []))
        for name, (words, _) in COMMANDS.items():
            known = self.folder / f"{name}.json"
            if words[0] == "eval" and not known.exists():
                known.write_text(self.run(*words, *LONG)[2])

    def facts(self, name: str, printed: str) -> dict:
        """The figure of `darn eval`, beside that of the long way."""
        if COMMANDS[name][0][0] != "eval":
            return {}
        here, far = json.loads(printed), json.loads((self.folder / f"{name}.json").read_text())
        keys = ("rows", "nll", "nll_ci95", "n_samples", "unsettled", "method")
        width = here["nll_ci95"] + far["nll_ci95"]
        facts = {"found": {k: here.get(k) for k in keys}, "long": {k: far.get(k) for k in keys}}
        return facts | {"within_intervals": bool(abs(here["nll"] - far["nll"]) <= width + 1e-6)}


def measured(starts: Starts, names: list[str], repeats: int, fresh: int) -> list[dict]:
    """All commands in turn, `fresh` times with an empty cache and without one, `repeats` times with a full one."""
    times = {name: {way: [] for way in ("uncached", "first", "second")} for name in names}
    facts: dict[str, dict] = {name: {} for name in names}
    for name in names:
        starts.run(*COMMANDS[name][0])  # files are read, bytecode is stored
    for i in range(repeats):
        for name in names:
            words, _ = COMMANDS[name]
            if i < fresh:
                times[name]["uncached"].append(starts.run(*words, cached=False)[:2])
                starts.forget()
                times[name]["first"].append(starts.run(*words)[:2])
            *spent, printed = starts.run(*words)
            times[name]["second"].append(spent)
            facts[name] = starts.facts(name, printed)
            print(f"{name}: {spent[0]:.2f} s, {spent[1]:.2f} of processor time", file=sys.stderr, flush=True)
    return [row(name, times[name]) | facts[name] for name in names]


def row(name: str, times: dict[str, list]) -> dict:
    words, most = COMMANDS[name]
    ways = {}
    for way, found in times.items():
        if found:
            seconds, processor = ([float(v[k]) for v in found] for k in (0, 1))
            median = {"seconds": statistics.median(seconds), "processor_seconds": statistics.median(processor)}
            ways[way] = median | {"all_seconds": seconds, "all_processor_seconds": processor}
    within = ways["second"]["seconds"] <= most
    return {"name": name, "command": "darn " + " ".join(words), "most_seconds": most, "within": within, "ways": ways}


def line(found: dict) -> str:
    """A row of the record in words."""
    said = []
    for way, took in found["ways"].items():
        said.append(f"{way} {took['seconds']:.2f} s ({took['processor_seconds']:.2f} of processor time)")
    within = "yes" if found["within"] else "NO"
    return f"{found['command']:45} {', '.join(said)}; at most {found['most_seconds']:g} s: {within}"


def main(argv: list[str] | None = None) -> dict:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser("python -m benchmarks.start", description="Times whole commands.")
    parser.add_argument("--folder", type=Path, help="keeps the trained models, for other calls")
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--repeats", type=int, default=5, help="with a full cache of programs")
    parser.add_argument("--fresh", type=int, default=3, help="with an empty one, and without one")
    parser.add_argument("--tiny", action="store_true", help="models that train in seconds: does it run?")
    parser.add_argument("--prepare", action="store_true", help="only train the models, in --folder")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench" / "start.json")
    args = parser.parse_args(argv)
    record = environment(f"python -m benchmarks.start {' '.join(argv)}".strip(), 0)
    with tempfile.TemporaryDirectory() as temporary:
        starts = Starts((args.folder or Path(temporary)).absolute())
        starts.prepare(args.tiny)
        if args.prepare:
            return record
        when = {k: record[k] for k in ("commit", "date")} | {"load_average": record["threads"]["load_average"]}
        found = {one["name"]: one | when for one in measured(starts, args.only, args.repeats, args.fresh)}
    before = json.loads(args.out.read_text())["rows"] if args.out.exists() else []
    rows = {one["name"]: one for one in before} | found
    write(args.out, record | {"long": " ".join(LONG), "rows": [rows[k] for k in COMMANDS if k in rows]})
    print(*map(line, found.values()), sep="\n")
    return record


if __name__ == "__main__":
    main()

"""Peak memory and rows a second of the commands that read or write many rows: memory must not grow with the rows.

python -m benchmarks.memory --rows 50000 5000000 --only eval encode --kinds npy --jobs 4
"""

import argparse
import json
import signal
import statistics
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np

from benchmarks.measure import ROOT, device_name, environment
from benchmarks.sizes import Size
from darn.model_file import save_model

PART = 10_000  # rows written at once, always the same
KINDS = ("npy", "npz", "csv", "parquet")
COMMANDS = ("eval", "encode", "complete", "compress", "decompress", "sample")


def model_of(columns: int) -> Size:
    """A small model, so that the rows are what takes memory."""
    return Size(f"{columns}/8/2 factorial", columns, 2, 8, "factorial", 0.1)


MODEL = model_of(1600)


def write(path: Path, rows: int, columns: int) -> None:
    """A file of so many rows, which repeat after 10,000."""
    x = model_of(columns).rows(min(PART, rows), 0)
    parts = (x[: min(PART, rows - i)] for i in range(0, rows, PART))
    kind = path.suffix[1:]
    if kind == "npy":
        with open(path, "wb") as f:
            _array(f, (rows, columns), parts)
    elif kind == "npz":
        archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
        with archive as z, z.open("x.npy", "w", force_zip64=True) as f:
            _array(f, (rows, columns), parts)
    elif kind == "csv":
        text = b"".join(b",".join(b"01"[b : b + 1] for b in row) + b"\n" for row in x.tolist())
        size = len(text) // len(x)
        with open(path, "wb") as f:
            for part in parts:
                f.write(text[: size * len(part)])
    else:
        import polars

        # Each part with its columns moved by one: what repeats would hardly take space, and so be refused as a bomb.
        frames = [polars.DataFrame(np.roll(p, i, axis=1)) for i, p in enumerate(parts)]
        polars.concat(frames, rechunk=False).write_parquet(path, row_group_size=100_000)


def _array(f, shape: tuple[int, int], parts) -> None:
    head = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(f, head)
    for part in parts:
        f.write(part.tobytes())


# The command tells its own peak: what the system counts for a process that has ended includes the one that started it.
RUNNER = """import os, sys
from darn.cli import main
status = main(sys.argv[1:])
with open("/proc/self/status") as f:
    peak = next(line.split()[1] for line in f if line.startswith("VmHWM"))
print(peak, sum(os.times()[:4]), file=sys.stderr)
sys.exit(status)"""


def measure(words: list[str], stop: float | None = None) -> dict:
    """Seconds, processor seconds and peak memory of one command, in a process of its own; Linux only.

    The peak is of all resident pages, so it counts programs and mapped files, too. Ctrl-C stops the command after
    `stop` seconds.
    """
    began = time.monotonic()
    command = [sys.executable, "-c", RUNNER, *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        try:
            _, said = child.communicate(timeout=stop)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGINT)
            _, said = child.communicate()
    if child.returncode not in ((0,) if stop is None else (0, 130)):
        sys.exit(f"`darn {' '.join(words)}` failed: {said[-500:]}")
    peak, processor = said.split()[-2:]
    found = {"seconds": round(time.monotonic() - began, 1), "processor_seconds": round(float(processor), 1)}
    found |= {"peak_mb": round(int(peak) * 1024 / 1e6)}
    return found if stop is None else found | {"stopped": child.returncode != 0}


def repeated(words: list[str], repeats: int) -> dict:
    """The medians of several runs, and all of their peaks."""
    runs = [measure(words) for _ in range(repeats)]
    middle = {k: round(statistics.median(run[k] for run in runs), 1) for k in runs[0]}
    return middle | {"peaks_mb": [run["peak_mb"] for run in runs]}


def work(name: str, model: Path, data: Path, rows: int) -> list[list[str]]:
    """The command, after those that make what it needs."""
    run, made = [str(model), str(data)], str(data.with_name(f"{name}-{data.stem}-{data.suffix[1:]}.npy"))
    packed = str(data.with_name(f"{name}-{data.stem}-{data.suffix[1:]}.drn"))
    return {
        "eval": [["eval", *run]],
        "encode": [["encode", *run, "--out", made]],
        "complete": [["complete", *run, "--hide", "lower", "--samples", "10"]],
        "compress": [["compress", "--quiet", *run, packed]],
        "decompress": [["compress", "--quiet", *run, packed], ["decompress", "--quiet", str(model), packed, made]],
        "sample": [["sample", str(model), "-n", str(rows), "--out", made]],
    }[name]


def main(argv: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser("python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[50_000, 5_000_000])
    parser.add_argument("--columns", type=int, default=MODEL.n_x, help="bits of a row")
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=COMMANDS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["npy"])
    parser.add_argument(
        "--repeats",
        type=int,
        nargs="+",
        default=[3],
        help="runs of each command, of which the median is kept: one number for all of --rows, or one for each",
    )
    parser.add_argument("--jobs", type=int, default=1, help="commands side by side")
    parser.add_argument("--folder", type=Path, default=Path("runs/memory"), help="for the files, which are removed")
    parser.add_argument("--out", type=Path, help="where the JSON goes; default: results/bench/<device>-memory.json")
    args = parser.parse_args(argv)
    args.folder.mkdir(parents=True, exist_ok=True)
    model = args.folder / "model.safetensors"
    size = model_of(args.columns)
    save_model(model, size.random(0))
    if len(args.repeats) not in (1, len(args.rows)):
        parser.error("give one number of --repeats, or one for each of --rows")
    repeats = dict(zip(args.rows, args.repeats * len(args.rows)))
    asked = ("rows", "only", "kinds", "columns", "repeats", "jobs")
    given = {k: vars(args)[k] for k in asked if vars(args)[k] != parser.get_default(k)}
    words = [f"--{k} {' '.join(map(str, v)) if isinstance(v, list) else v}" for k, v in given.items()]
    command = " ".join(["python -m benchmarks.memory", *words])
    record = environment(command, 0) | {"columns": size.n_x, "model": size.name, "rows": []}
    out = args.out or ROOT / "results" / "bench" / f"{device_name()}-memory.json"
    out.parent.mkdir(parents=True, exist_ok=True)

    def one(kind: str, rows: int, name: str) -> dict:
        data = args.folder / f"{rows}.{kind}"
        *before, words = work(name, model, data, rows)
        for first in before:
            measure(first)
        found = {"command": name, "kind": kind, "rows": rows, **repeated(words, repeats[rows])}
        for path in args.folder.glob(f"{name}-{rows}-{kind}.*"):
            path.unlink()
        return found | {"rows_a_second": round(rows / found["seconds"])}

    files = [(kind, rows) for rows in sorted(args.rows, reverse=True) for kind in args.kinds]
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(lambda file: write(args.folder / f"{file[1]}.{file[0]}", file[1], size.n_x), files))
        asked = [pool.submit(one, *file, name) for file in files for name in args.only]
        for done in as_completed(asked):
            record["rows"].append(done.result())
            print(json.dumps(done.result()), flush=True)
            record["rows"].sort(key=lambda r: (KINDS.index(r["kind"]), r["rows"], COMMANDS.index(r["command"])))
            out.write_text(json.dumps(record, indent=1) + "\n")
    for kind, rows in files:
        (args.folder / f"{rows}.{kind}").unlink()
    return record


if __name__ == "__main__":
    main()

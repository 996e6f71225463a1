"""Peak memory and rows a second of the commands that read or write many rows: memory must not grow with the rows.

python -m benchmarks.memory --rows 50000 5000000 --only eval encode --kinds npy
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import zipfile
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
RUNNER = """import sys
from darn.cli import main
status = main(sys.argv[1:])
with open("/proc/self/status") as f:
    print(next(line.split()[1] for line in f if line.startswith("VmHWM")), file=sys.stderr)
sys.exit(status)"""


def measure(words: list[str], stop: float | None = None) -> dict:
    """Seconds, processor seconds and peak memory of one command, in a process of its own; Linux only.

    Ctrl-C stops it after `stop` seconds.
    """
    began, before = time.monotonic(), os.times()
    command = [sys.executable, "-c", RUNNER, *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        try:
            _, said = child.communicate(timeout=stop)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGINT)
            _, said = child.communicate()
    if child.returncode not in ((0,) if stop is None else (0, 130)):
        sys.exit(f"`darn {' '.join(words)}` failed: {said[-500:]}")
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    found = {"seconds": round(time.monotonic() - began, 1), "processor_seconds": round(processor, 1)}
    found |= {"peak_mb": round(int(said.split()[-1]) * 1024 / 1e6)}
    return found if stop is None else found | {"stopped": child.returncode != 0}


def repeated(words: list[str], repeats: int) -> dict:
    """The medians of several runs, and all of their peaks."""
    runs = [measure(words) for _ in range(repeats)]
    middle = {k: statistics.median(run[k] for run in runs) for k in runs[0]}
    return middle | {"peaks_mb": [run["peak_mb"] for run in runs]}


def main(argv: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser("python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[50_000, 5_000_000])
    parser.add_argument("--columns", type=int, default=MODEL.n_x, help="bits of a row")
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=COMMANDS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["npy"])
    parser.add_argument("--repeats", type=int, default=3, help="runs of each command, of which the median is kept")
    parser.add_argument("--folder", type=Path, default=Path("runs/memory"), help="for the files, which are removed")
    parser.add_argument("--out", type=Path, help="where the JSON goes; default: results/bench/<device>-memory.json")
    args = parser.parse_args(argv)
    args.folder.mkdir(parents=True, exist_ok=True)
    model = args.folder / "model.safetensors"
    size = model_of(args.columns)
    save_model(model, size.random(0))
    asked = ("rows", "only", "kinds", "columns", "repeats")
    given = {k: vars(args)[k] for k in asked if vars(args)[k] != parser.get_default(k)}
    words = [f"--{k} {' '.join(map(str, v)) if isinstance(v, list) else v}" for k, v in given.items()]
    command = " ".join(["python -m benchmarks.memory", *words])
    record = environment(command, 0) | {"columns": size.n_x, "model": size.name, "rows": []}
    out = args.out or ROOT / "results" / "bench" / f"{device_name()}-memory.json"
    for kind in args.kinds:
        for rows in args.rows:
            data, drn = args.folder / f"x.{kind}", args.folder / "x.drn"
            made = args.folder / "out.npy"
            write(data, rows, size.n_x)
            run = [str(model), str(data)]
            for name in args.only:
                if name == "decompress" and not drn.exists():
                    continue
                words = {
                    "eval": ["eval", *run],
                    "encode": ["encode", *run, "--out", str(made)],
                    "complete": ["complete", *run, "--hide", "lower", "--samples", "10"],
                    "compress": ["compress", "--quiet", *run, str(drn)],
                    "decompress": ["decompress", "--quiet", str(model), str(drn), str(made)],
                    "sample": ["sample", str(model), "-n", str(rows), "--out", str(made)],
                }[name]
                if name in ("decompress", "sample"):
                    data.unlink(missing_ok=True)  # two files of this size are too many
                found = {"command": name, "kind": kind, "rows": rows, **repeated(words, args.repeats)}
                found["rows_a_second"] = round(rows / found["seconds"])
                made.unlink(missing_ok=True)
                record["rows"].append(found)
                print(json.dumps(found), flush=True)
                out.parent.mkdir(parents=True, exist_ok=True)
                out.write_text(json.dumps(record, indent=1) + "\n")
            for path in (data, drn):
                path.unlink(missing_ok=True)
    return record


if __name__ == "__main__":
    main()

"""Peak memory and rows a second of the commands that read or write many rows: memory must not grow with the rows.

python -m benchmarks.memory --rows 50000 5000000 --only eval encode --kinds npy
"""

import argparse
import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np

from benchmarks.measure import ROOT, device_name, environment
from benchmarks.sizes import Size
from darn.model_file import save_model

MODEL = Size("1600/8/2 factorial", 1600, 2, 8, "factorial", 0.1)
PART = 10_000  # rows written at once, always the same
KINDS = ("npy", "npz", "csv", "parquet")
COMMANDS = ("eval", "encode", "complete", "compress", "decompress", "sample")


def write(path: Path, rows: int) -> None:
    """A file of so many rows, which repeat after 10,000."""
    x = MODEL.rows(min(PART, rows), 0)
    parts = (x[: min(PART, rows - i)] for i in range(0, rows, PART))
    kind = path.suffix[1:]
    if kind == "npy":
        with open(path, "wb") as f:
            _array(f, rows, parts)
    elif kind == "npz":
        archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
        with archive as z, z.open("x.npy", "w", force_zip64=True) as f:
            _array(f, rows, parts)
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


def _array(f, rows: int, parts) -> None:
    head = {"descr": "|u1", "fortran_order": False, "shape": (rows, MODEL.n_x)}
    np.lib.format.write_array_header_1_0(f, head)
    for part in parts:
        f.write(part.tobytes())


# The system counts the memory of the process that starts a command as the command's own, so a small one starts it.
STARTER = """import resource, signal, subprocess, sys
child = subprocess.Popen(sys.argv[2:], stdout=subprocess.DEVNULL)
try:
    status = child.wait(float(sys.argv[1]))
except subprocess.TimeoutExpired:
    child.send_signal(signal.SIGINT)
    status = child.wait()
print(status, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"""


def measure(words: list[str], stop: float | None = None) -> dict:
    """Seconds and peak memory of one command, in a process of its own; Ctrl-C stops it after `stop` seconds."""
    began = time.monotonic()
    limit = str(1e6 if stop is None else stop)
    starter = [sys.executable, "-S", "-c", STARTER, limit, sys.executable, "-m", "darn", *words]
    status, peak = map(int, subprocess.run(starter, stdout=subprocess.PIPE, text=True, check=True).stdout.split())
    if status not in ((0,) if stop is None else (0, 130)):
        sys.exit(f"`darn {' '.join(words)}` failed")
    size = peak * 1024 if sys.platform != "darwin" else peak
    found = {"seconds": round(time.monotonic() - began, 1), "peak_mb": round(size / 1e6)}
    return found if stop is None else found | {"stopped": status != 0}


def main(argv: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser("python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[50_000, 5_000_000])
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=COMMANDS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["npy"])
    parser.add_argument("--folder", type=Path, default=Path("runs/memory"), help="for the files, which are removed")
    parser.add_argument("--out", type=Path, help="where the JSON goes; default: results/bench/<device>-memory.json")
    args = parser.parse_args(argv)
    args.folder.mkdir(parents=True, exist_ok=True)
    model = args.folder / "model.safetensors"
    save_model(model, MODEL.random(0))
    record = environment("python -m benchmarks.memory", 0) | {"columns": MODEL.n_x, "model": MODEL.name, "rows": []}
    out = args.out or ROOT / "results" / "bench" / f"{device_name()}-memory.json"
    for kind in args.kinds:
        for rows in args.rows:
            data, drn = args.folder / f"x.{kind}", args.folder / "x.drn"
            made = args.folder / "out.npy"
            write(data, rows)
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
                found = {"command": name, "kind": kind, "rows": rows, **measure(words)}
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

"""Packed sets: peak memory of commands on sets of any size, and the rate of training beside rows in memory.

python -m benchmarks.packs --gb 1 8 --stop compress=300
"""

import argparse
import itertools
import json
import shutil
import statistics
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from unittest import mock

import jax
import numpy as np

from benchmarks.measure import ROOT, device_name, environment
from benchmarks.memory import MODEL, PART, measure
from darn.model_file import save_model

COMMANDS = ("pack", "train", "eval", "compress")
RATE = {"rows": 1_000_000, "seconds": 2.0, "repeats": 7}


def write(path: Path, rows: int) -> None:
    """A .npz of so many rows of bits, packed, which repeat after 10,000."""
    x = np.packbits(MODEL.rows(min(PART, rows), 0), axis=1)
    with zipfile.ZipFile(path, "w") as archive:
        with archive.open("n.npy", "w") as f:
            np.lib.format.write_array(f, np.asarray(MODEL.n_x))
        with archive.open("x.npy", "w", force_zip64=True) as f:
            head = {"descr": "|u1", "fortran_order": False, "shape": (rows, x.shape[1])}
            np.lib.format.write_array_header_1_0(f, head)
            for start in range(0, rows, PART):
                f.write(x[: min(PART, rows - start)].tobytes())


def grow(packed: Path, gb: float) -> int:
    """Repeats the parts of a set up to so many gigabytes, which is faster than packing them; returns its rows."""
    from darn.data._pack import MANIFEST, Pack, part_name

    about = Pack(packed).about
    parts = list(about.parts)
    for i in itertools.count(len(parts)):
        if sum(part.rows for part in parts) * about.record.itemsize >= gb * 1e9:
            break
        shutil.copy(packed / part_name(i % len(about.parts)), packed / part_name(i))
        parts.append(about.parts[i % len(about.parts)])
    (packed / MANIFEST).write_text(replace(about, parts=tuple(parts)).to_text())
    return sum(part.rows for part in parts)


def peaks(gb: float, base: float, batch: int, folder: Path, only: list[str], stop: dict[str, float]) -> list[dict]:
    """Peak memory of each command on a set of so many gigabytes; Ctrl-C stops those of `stop` after so many seconds."""
    rows = int(min(base, gb) * 1e9 / (MODEL.n_x / 8))
    file, packed, run, model = (folder / name for name in ("x.npz", "packed", "run", "model.safetensors"))
    write(file, rows)
    save_model(model, MODEL.random(0))
    small = ["--n_h", str(MODEL.n_h), "--n_d", str(MODEL.n_d), "--visible", MODEL.visible, "--quiet"]
    train = ["train", str(packed), "--epochs", "1", "--batch", str(batch), *small, "--out", str(run)]
    words = {
        "pack": ["data", "pack", str(file), "--out", str(packed)],
        "train": train,
        "eval": ["eval", str(model), str(packed)],
        "compress": ["compress", str(model), str(packed), str(folder / "x.drn"), "--quiet"],
    }
    found = []
    for name in COMMANDS:
        if name not in only and name != "pack":
            continue
        size = {"gb": min(base, gb) if name == "pack" else gb, "rows": rows}
        one = {"command": name, **size, **measure(words[name], stop.get(name))}
        print(json.dumps(one), flush=True)
        found.append(one)
        if name == "pack":
            file.unlink()
            rows = grow(packed, gb)
    for path in (packed, run):
        shutil.rmtree(path, ignore_errors=True)
    (folder / "x.drn").unlink(missing_ok=True)
    return found


def fed(feed) -> dict[str, float]:
    """Microseconds that reading the rows of a step takes, in an epoch of its own with nothing beside it."""
    wall, busy = time.perf_counter(), time.process_time()
    starts = range(0, feed.program.steps_per_epoch, feed.steps)
    for start in starts:
        jax.block_until_ready(feed._chunk((1, start)))
    taken = {"wall": time.perf_counter() - wall, "processor": time.process_time() - busy}
    return {kind: 1e6 * seconds / feed.program.steps_per_epoch for kind, seconds in taken.items()}


def rates(folder: Path, rows: int, seconds: float, repeats: int) -> dict:
    """Steps a second from a packed set that is not held in memory, and from the same rows in memory, in turn.

    Whole epochs are timed, after one that is not: what is read ahead at the begin of a repeat is read ahead at its end.
    """
    from darn import Training, data
    from darn.data import _pack_rows
    from darn.training import Loop
    from darn.training._rows import on_devices

    write(folder / "x.npz", rows)
    data.pack_files([folder / "x.npz"], folder / "packed")
    (folder / "x.npz").unlink()
    with mock.patch.object(_pack_rows, "HELD", 1 << 40):
        whole = data.load(folder / "packed")
    with mock.patch.object(_pack_rows, "HELD", 0):
        streamed = data.load(folder / "packed")
    valid = on_devices(whole.valid.take(slice(0, 1000)))
    config = Training(epochs=10**6, batch=100, lr=1e-3, validate_every=10**6)
    ways = {"memory": on_devices(whole.train), "packed": on_devices(streamed.train)}
    loops = {name: Loop([MODEL.fresh(0)], [config], given, valid) for name, given in ways.items()}
    taken: dict[str, list[dict]] = {name: [] for name in loops}
    feeds = [fed(loops["packed"].feed) for _ in range(repeats + 1)][1:]

    def trained(loop: Loop, epochs: int) -> tuple[float, float]:
        until, wall, busy = loop.epoch + epochs, time.perf_counter(), time.process_time()
        while loop.epoch < until:
            loop.advance()
        return time.perf_counter() - wall, time.process_time() - busy

    once = {name: [trained(loop, 1) for _ in range(2)][1][0] for name, loop in loops.items()}  # the first compiles
    epochs = max(round(seconds / once["memory"]), 1)
    for _ in range(repeats):
        for name, loop in loops.items():
            trained(loop, 1)
            before = loop.epoch
            wall, busy = trained(loop, epochs)
            steps = (loop.epoch - before) * loop.program.steps_per_epoch
            taken[name].append({"steps_a_second": steps / wall, "steps_a_processor_second": steps / busy})
    for loop in loops.values():
        loop.feed.close()
    shutil.rmtree(folder / "packed")
    sizes = {"rows": rows, "columns": MODEL.n_x, "batch": 100, "epochs_a_repeat": epochs}
    found: dict = sizes | {"repeats": taken, "microseconds_of_feed_a_step": {}}
    for kind in ("wall", "processor"):
        found["microseconds_of_feed_a_step"][kind] = statistics.median(one[kind] for one in feeds)
    for kind in ("steps_a_second", "steps_a_processor_second"):
        each = {name: statistics.median(one[kind] for one in many) for name, many in taken.items()}
        ratios = [p[kind] / m[kind] for p, m in zip(taken["packed"], taken["memory"])]
        found[kind] = each | {"packed_beside_memory": statistics.median(ratios), "range": [min(ratios), max(ratios)]}
    return found


def main(argv: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser("python -m benchmarks.packs", description=__doc__)
    parser.add_argument("--gb", type=float, nargs="*", default=[1, 8], help="sizes of the sets, packed")
    parser.add_argument(
        "--base", type=float, default=1, help="gigabytes that are packed; their parts are then repeated"
    )
    parser.add_argument("--only", nargs="+", choices=(*COMMANDS, "rate"), default=[*COMMANDS, "rate"])
    parser.add_argument("--batch", type=int, default=1000, help="of the training whose memory is measured")
    parser.add_argument(
        "--stop", nargs="+", default=[], metavar="COMMAND=SECONDS", help="commands that are stopped by Ctrl-C"
    )
    parser.add_argument("--rate-rows", type=int, default=RATE["rows"])
    parser.add_argument("--rate-seconds", type=float, default=RATE["seconds"], help="about, each time")
    parser.add_argument("--folder", type=Path, default=Path("runs/packs"), help="for the sets, which are removed")
    parser.add_argument("--out", type=Path, help="where the JSON goes; default: results/bench/<device>-packs.json")
    args = parser.parse_args(argv)
    args.folder.mkdir(parents=True, exist_ok=True)
    out = args.out or ROOT / "results" / "bench" / f"{device_name()}-packs.json"
    command = " ".join(["python -m benchmarks.packs", *(sys.argv[1:] if argv is None else argv)])
    record = environment(command, 0) | {"columns": MODEL.n_x, "model": MODEL.name}
    stop = {name: float(seconds) for name, _, seconds in (one.partition("=") for one in args.stop)}
    record |= {"batch": args.batch, "stopped_after_seconds": stop, "memory": []}
    out.parent.mkdir(parents=True, exist_ok=True)
    if "rate" in args.only:
        record["rate"] = rates(args.folder, args.rate_rows, args.rate_seconds, RATE["repeats"])
        print(json.dumps({k: v for k, v in record["rate"].items() if k != "repeats"}), flush=True)
        out.write_text(json.dumps(record, indent=1) + "\n")
    for gb in args.gb if set(args.only) & set(COMMANDS) else ():
        record["memory"] += peaks(gb, args.base, args.batch, args.folder, args.only, stop)
        out.write_text(json.dumps(record, indent=1) + "\n")
    return record


if __name__ == "__main__":
    main()

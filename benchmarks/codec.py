"""The codec: file sizes against the bound and against general compressors, rates, round trips over random stacks.

    python -m benchmarks.codec sizes MODEL [--data SET]     one model's test rows; beside xz, bzip2, zpaq, JBIG2
    python -m benchmarks.codec coders                       ways to code a bit: numba, NumPy lanes, constriction
    python -m benchmarks.codec trips [--stacks 200 --sets 50]
    python -m benchmarks.codec memory                       peak memory for 10 MB and 100 MB of input
    python -m benchmarks.codec exchange MINE [OTHER]        compresses into MINE, reads what another machine made
    python -m benchmarks.codec frontier MODEL --rows N --out FOLDER [--read OTHER.drn]
        a large model's first N test rows: bytes, speed of both ways, and what another machine made of the first of them

Each writes results/bench/codec-NAME.json.
"""

import argparse
import bz2
import hashlib
import json
import lzma
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.measure import ROOT, device_name, environment

# ---------------------------------------------------------------- sizes

MOST_TO_PRIME = 1 << 26  # bytes of training rows, for which zpaq -m5 takes about 3 s per megabyte, twice


def sheet(x: np.ndarray, shape) -> np.ndarray:
    """Rows as one bilevel page: a row a line, or where they are images as near a square of images as there is."""
    if not shape:
        return x
    (height, width), across = shape, int(len(x) ** 0.5)
    x = np.concatenate([x, np.zeros((-len(x) % across, x.shape[1]), x.dtype)])
    return x.reshape(-1, across, height, width).swapaxes(1, 2).reshape(-1, across * width)


def others(x: np.ndarray, train: bytes, shape) -> dict[str, dict | str]:
    """Bytes and seconds of general compressors on rows packed eight bits to a byte, and of bilevel ones on a page of
    them; those not installed are named so. Primed: of training and test rows, less of training rows."""
    packed, page = np.packbits(x, axis=1).tobytes(), sheet(x, shape)
    found: dict[str, dict | str] = {"packed, not compressed": {"bytes": len(packed)}}
    with tempfile.TemporaryDirectory() as folder:
        names = {k: Path(folder) / k for k in ("rows", "train", "both", "page.pbm")}
        names["rows"].write_bytes(packed)
        names["train"].write_bytes(train)
        names["both"].write_bytes(train + packed)
        pixels = np.packbits(page, axis=1).tobytes()
        Image.fromarray(page == 0).save(f"{folder}/page.png")  # in a PBM 1 is black
        names["page.pbm"].write_bytes(b"P4\n%d %d\n" % (page.shape[1], len(page)) + pixels)

        def tool(made: str, *command: str) -> int:
            """The size of the file `made`, or for "-" of what the command prints."""
            done = subprocess.run(command, capture_output=True, check=True, cwd=folder)
            return len(done.stdout) if made == "-" else (Path(folder) / made).stat().st_size

        def zpaq(name: str) -> int:
            return tool(f"{name}.zpaq", "zpaq", "a", f"{name}.zpaq", name, "-m5")

        ways = {
            "bzip2 -9": (None, lambda: len(bz2.compress(packed, 9))),
            "xz -9e": (None, lambda: len(lzma.compress(packed, preset=9 | lzma.PRESET_EXTREME))),
            "zpaq -m5": ("zpaq", lambda: zpaq("rows")),
            "zpaq -m5, primed": ("zpaq", lambda: zpaq("both") - zpaq("train")),
            "jbig2 (generic region)": ("jbig2", lambda: tool("-", "jbig2", "page.pbm")),
            "DjVu (cjb2)": ("cjb2", lambda: tool("d.djvu", "cjb2", "page.pbm", "d.djvu")),
            "JPEG XL": ("cjxl", lambda: tool("j.jxl", "cjxl", "page.png", "j.jxl", "-d", "0", "-e", "9")),
        }
        for name, (program, size) in ways.items():
            if program and shutil.which(program) is None:
                found[name] = "not installed"
                continue
            if name.endswith("primed") and len(train) > MOST_TO_PRIME:
                found[name] = f"not measured: {len(train):,} bytes of training rows are too many"
                continue
            start = time.perf_counter()
            try:
                n = size()
            except subprocess.CalledProcessError as e:
                found[name] = f"failed: {e.stderr.decode(errors='replace').strip()[-200:]}"
                continue
            seconds = round(time.perf_counter() - start, 3)
            found[name] = {"bytes": n, "nats_a_row": 8 * n * np.log(2) / len(x), "seconds": seconds}
    return found


def sizes(args) -> dict:
    from darn import codec
    from darn.inference import likelihood
    from darn.runs.run import load

    run = load(args.model)
    rows = run.rows(args.data)
    x = rows.take(slice(0, args.rows or len(rows))).unpack()
    x = x[np.random.RandomState(0).permutation(len(x))] if args.shuffle else x
    bound = likelihood.importance(run.model, x, n_samples=args.samples, repeats=1).bound
    row = codec.RowCodec(run.model)
    times: dict[str, list[float]] = {"encode": [], "decode": []}
    processor: dict[str, list[float]] = {"encode": [], "decode": []}  # on a busy machine the steadier measure
    data, back = b"", x
    for _ in range(1 + args.repeats):  # the first round compiles
        start, cpu = time.perf_counter(), time.process_time()
        data = codec.compress(run.model, x)
        written, cpu_written = time.perf_counter(), time.process_time()
        back = codec.decompress(run.model, data)
        times["encode"].append(written - start)
        times["decode"].append(time.perf_counter() - written)
        processor["encode"].append(cpu_written - cpu)
        processor["decode"].append(time.process_time() - cpu_written)
    assert np.array_equal(back, x)
    found = codec.inspect(data)
    bound_bytes = bound * len(x) / np.log(2) / 8
    middle = {k: statistics.median(v[1:] or v) for k, v in times.items()}
    return {
        "model": args.model,
        "rows": len(x),
        "columns": x.shape[1],
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "bits_per_dim": 8 * len(data) / x.size,
        "nats_a_row": 8 * len(data) * np.log(2) / len(x),
        "bound_nats_a_row": bound,
        "over_the_bound_bytes": len(data) - bound_bytes,
        "over_the_bound_percent": 100 * (len(data) / bound_bytes - 1),
        "within_the_law": bool(len(data) - bound_bytes <= max(256, 0.005 * bound_bytes)),
        "overhead_bytes_along_the_path": found.overhead / 8,
        "rows_without_bits_back": found.first,
        "rounding_cost_nats_a_row": codec.rounding_cost(run.model, row.twin, x),
        "seconds": times,
        "processor_seconds": processor,
        "rows_a_second": {k: len(x) / v for k, v in middle.items()},
        "rows_a_processor_second": {k: len(x) / statistics.median(v[1:] or v) for k, v in processor.items()},
        "unpacked_MB_a_second": {k: x.size / 1e6 / v for k, v in middle.items()},
        "others": others(x, run.splits().train.values.tobytes(), run.shape),
    }


# ---------------------------------------------------------------- coders


def coders(args) -> dict:
    """Nanoseconds of processor time to push and to pop a bit under its own 28-bit probability."""
    from darn.codec._ans import BITS, Ans

    rng = np.random.default_rng(0)
    n = args.bits
    a = (3 * rng.normal(size=n)).astype(np.float32)
    p = 1 / (1 + np.exp(-a.astype(np.float64)))
    bits = (rng.random(n) < p).astype(np.uint8)
    found = {}

    def ours():
        ans = Ans()
        start = time.process_time()
        ans.push(bits, a)
        middle = time.process_time()
        ans.pop(a)
        return middle - start, time.process_time() - middle

    ours()
    found["one state, numba"] = [1e9 * t / n for t in min(ours() for _ in range(3))]
    for lanes in (16, 256, 1000):
        steps = min(n // lanes, 2000)
        f = np.clip(np.rint(p[: steps * lanes] * 2**BITS), 1, 2**BITS - 1).astype(np.uint64).reshape(steps, lanes)
        y = bits[: steps * lanes].reshape(steps, lanes).astype(bool)
        s, one = np.full(lanes, 1 << 40, np.uint64), np.uint64(1 << BITS)
        start = time.process_time()
        for i in range(steps):
            own, before = np.where(y[i], f[i], one - f[i]), np.where(y[i], np.uint64(0), f[i])
            full = s >= own << np.uint64(64 - BITS)
            s[full].astype(np.uint32)
            s = np.where(full, s >> np.uint64(32), s)
            q = s // own
            s = (q << np.uint64(BITS)) + (s - q * own) + before
        found[f"{lanes} lanes, NumPy (push alone)"] = [1e9 * (time.process_time() - start) / (steps * lanes)]
    try:
        import constriction

        model = constriction.stream.model.Bernoulli(perfect=False)
        coder = constriction.stream.stack.AnsCoder()
        start = time.process_time()
        coder.encode_reverse(bits.astype(np.int32), model, p)
        middle = time.process_time()
        coder.decode(model, p)
        found["constriction"] = [1e9 * t / n for t in (middle - start, time.process_time() - middle)]
    except ImportError:
        found["constriction"] = "not installed"
    return {"bits": n, "nanoseconds_push_pop": found}


# ---------------------------------------------------------------- round trips


def random_stack(seed: int):
    """A stack of random shape and weights: layers, widths, depth, parents, nets, scale of the weights."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    from darn.config import Architecture
    from darn.zoo import build

    rng = np.random.default_rng(seed)
    kinds = ("factorial", "linear", "nade", "eonade")
    depth = int(rng.choice([0, 1, 1, 2, 3]))
    arch = Architecture(
        n_h=tuple(int(v) for v in rng.integers(1, 12, depth)),
        n_d=tuple(int(v) for v in rng.integers(1, 9, rng.integers(0, 3))),
        activation=str(rng.choice(["tanh", "relu"])),
        visible=str(rng.choice(kinds)),
        prior=str(rng.choice(kinds)),
        encoder=str(rng.choice(kinds)),
        skip=bool(rng.random() < 0.5),
        n_nade=tuple(int(v) for v in rng.integers(1, 7, rng.integers(1, 3))),
        n_orderings=int(rng.integers(1, 5)),
    )
    n_x, scale = int(rng.integers(1, 40)), float(rng.choice([0.1, 1.0, 5.0]))
    weights, rest = eqx.partition(build(arch, n_x, key=jax.random.key(0)), eqx.is_inexact_array)
    draw = lambda w: jnp.asarray(scale * rng.normal(size=w.shape), jnp.float32)  # noqa: E731
    return eqx.combine(jax.tree.map(draw, weights), rest), arch


def random_rows(rng: np.random.Generator, codec_, n_x: int) -> np.ndarray:
    """None, one or many rows: random, constant, alike, or the least probable that the visible layer allows."""
    rows = int(rng.choice([0, 1, 2, 3, 5, 8]))
    kind = rng.integers(4)
    if kind == 0:
        return np.full((rows, n_x), rng.integers(2), np.uint8)
    if kind == 1:
        return np.repeat((rng.random((1, n_x)) < 0.5).astype(np.uint8), rows, axis=0)
    x = (rng.random((rows, n_x)) < rng.random()).astype(np.uint8)
    if kind == 2 and rows:  # each unit at its less probable value, some code being given
        h = tuple((rng.random((rows, n)) < 0.5).astype(np.uint8) for n in codec_.twin.n_h)
        sequences = codec_.evaluate.sequences.get(("p", 0))
        orders = None if sequences is None else rng.integers(0, len(sequences), rows)
        x = codec_.evaluate.walk("p", 0, rows, None, h, lambda _, a: (a <= 0).astype(np.uint8), orders)
    return x


def trips(args) -> dict:
    """Round trips through whole files."""
    import io

    from darn import codec
    from darn.codec._stack import StackCodec

    done, worst, stacks, began = 0, 0.0, {}, time.monotonic()
    for seed in range(args.first, args.first + args.stacks):
        model, arch = random_stack(seed)
        row = codec.RowCodec(model, batch=8, workers=1)
        rng, stack = np.random.default_rng(seed + 10**6), StackCodec(row.twin, 8)
        for _ in range(args.sets):
            x = random_rows(rng, stack, model.n_x)
            file = io.BytesIO()
            found = row.write(file, [x], len(x))
            file.seek(0)
            back = [y for _, y in row.read(file, codec.read_head(file))]
            assert np.array_equal(np.concatenate(back) if back else x[:0], x), (seed, x)
            worst, done = max(worst, found.overhead / 8), done + 1
        key = f"{arch.visible} / {len(arch.n_h)} hidden"
        stacks[key] = stacks.get(key, 0) + 1
        print(f"{done:,} round trips, {seed + 1 - args.first} stacks", file=sys.stderr, flush=True)
    return {
        "round_trips": done,
        "stacks": args.stacks,
        "kinds": stacks,
        "failures": 0,
        "largest_overhead_bytes": worst,
        "seconds": time.monotonic() - began,
    }


# ---------------------------------------------------------------- memory


def memory(args) -> dict:
    """Peak memory of a process that compresses 10 MB and of one that compresses 100 MB of a .npy file."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for megabytes in args.megabytes:
            x = np.lib.format.open_memmap(f"{folder}/x.npy", "w+", np.uint8, (megabytes * 10**6 // 784, 784))
            rng = np.random.default_rng(0)
            for i in range(0, len(x), 10_000):
                x[i : i + 10_000] = rng.random((len(x[i : i + 10_000]), 784)) < 0.1
            del x
            pid = os.fork()
            if not pid:
                command = [
                    sys.executable,
                    "-m",
                    "darn",
                    "compress",
                    args.model,
                    f"{folder}/x.npy",
                    f"{folder}/x.drn",
                ]
                os.execv(sys.executable, [*command, "--quiet"])
            _, status, used = os.wait4(pid, 0)
            assert status == 0
            found[f"{megabytes} MB"] = {"peak_MB": used.ru_maxrss / 1024, "seconds": used.ru_utime + used.ru_stime}
    return found


# ---------------------------------------------------------------- from machine to machine


def exchange(args) -> dict:
    """The first test rows compressed here, and another machine's file of them read."""
    from darn import codec
    from darn.runs.run import load

    run = load(args.model)
    x = run.rows().take(slice(0, args.rows)).unpack()
    mine = codec.compress(run.model, x)
    args.mine.write_bytes(mine)
    facts = {"rows": len(x), "bytes": len(mine), "sha256": hashlib.sha256(mine).hexdigest()}
    facts["rows_come_back"] = bool(np.array_equal(codec.decompress(run.model, mine), x))
    if args.other:
        other = args.other.read_bytes()
        back = bool(np.array_equal(codec.decompress(run.model, other), x))
        facts["other"] = {
            "sha256": hashlib.sha256(other).hexdigest(),
            "same_bytes": other == mine,
            "rows_come_back": back,
        }
    return facts


# ---------------------------------------------------------------- large models


def frontier(args) -> dict:
    """Test rows compressed and restored, and another machine's file of them read. The file stays beside the record."""
    from darn import codec
    from darn.runs.run import load

    run = load(args.model)
    rows = run.rows()
    x = rows.take(slice(0, min(args.rows, len(rows)))).unpack()
    rounds: dict[str, list[dict]] = {"encode": [], "decode": []}

    def timed(way: str, count: int, f, given):
        start, cpu = time.perf_counter(), time.process_time()
        found = f(run.model, given)
        one = {"rows": count, "seconds": time.perf_counter() - start, "processor_seconds": time.process_time() - cpu}
        rounds[way].append(one)
        print(f"{way} {json.dumps(one)}", file=sys.stderr, flush=True)
        return found

    path = args.out / f"{Path(args.model).stem}-{device_name()}.drn"
    path.parent.mkdir(parents=True, exist_ok=True)
    data, whole, other = b"", True, None
    for turn in range(1 + args.repeats):  # the first round compiles
        own = x if turn else x[: args.first]
        data = timed("encode", len(own), codec.compress, own)
        path.write_bytes(data)
        whole &= args.write_only or bool(np.array_equal(timed("decode", len(own), codec.decompress, data), own))
        if args.read and other is None:
            other = read(run, args.read, x)
    found = codec.inspect(data)
    facts = {
        "model": args.model,
        "rows": found.rows,
        "columns": x.shape[1],
        "file": path.name,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "bits_per_dim": 8 * len(data) / found.rows / x.shape[1],
        "nats_a_row": 8 * len(data) * np.log(2) / found.rows,
        "nats_a_row_of_the_path": found.ideal * np.log(2) / found.rows,
        "overhead_bytes": found.overhead / 8,
        "rows_without_bits_back": found.first,
        "rows_come_back": "not tried" if args.write_only else whole,
        "rounds": rounds,
        "rows_a_second": {k: max(one["rows"] / one["seconds"] for one in v) for k, v in rounds.items() if v},
    }
    if args.cost:
        twin = codec.RowCodec(run.model).twin
        facts["rounding_cost_nats_a_row"] = codec.rounding_cost(run.model, twin, x[: args.cost])
    return facts | ({"other": other} if other else {})


def read(run, path: Path, x: np.ndarray) -> dict:
    """Another machine's file of the first of the rows x, and whether this machine makes the same of them."""
    from darn import codec

    data, start = path.read_bytes(), time.perf_counter()
    there = codec.decompress(run.model, data)
    facts = {
        "file": path.name,
        "rows": len(there),
        "sha256": hashlib.sha256(data).hexdigest(),
        "seconds": time.perf_counter() - start,
        "rows_come_back": bool(np.array_equal(there, x[: len(there)])),
        "same_bytes": codec.compress(run.model, x[: len(there)]) == data,
    }
    print(json.dumps(facts), file=sys.stderr, flush=True)
    return facts


def main(argv: list[str] | None = None) -> dict:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser("python -m benchmarks.codec", description=__doc__)
    model = "results/models/mnist-500.safetensors"
    commands = parser.add_subparsers(dest="name", required=True)
    p = commands.add_parser("sizes")
    p.add_argument("model", nargs="?", default=model)
    p.add_argument("--data")
    p.add_argument("--shuffle", action="store_true", help="rows in random order")
    p.add_argument("--rows", type=int, help="only this many rows, from the first")
    p.add_argument("--samples", type=int, default=10, help="codes per row that the bound is averaged over")
    p.add_argument("--repeats", type=int, default=5)
    p = commands.add_parser("coders")
    p.add_argument("--bits", type=int, default=2_000_000)
    p = commands.add_parser("trips")
    p.add_argument("--stacks", type=int, default=200)
    p.add_argument("--sets", type=int, default=50, help="files for each stack")
    p.add_argument("--first", type=int, default=0, help="seed of the first stack")
    p = commands.add_parser("memory")
    p.add_argument("model", nargs="?", default=model)
    p.add_argument("--megabytes", type=int, nargs="+", default=[10, 100])
    p = commands.add_parser("exchange")
    p.add_argument("mine", type=Path)
    p.add_argument("other", type=Path, nargs="?")
    p.add_argument("--model", default=model)
    p.add_argument("--rows", type=int, default=1000)
    p = commands.add_parser("frontier")
    p.add_argument("model")
    p.add_argument("--rows", type=int, default=10_000)
    p.add_argument("--repeats", type=int, default=0, help="rounds after the first, which compiles")
    p.add_argument("--first", type=int, help="rows of the first round, which compiles; default: all")
    p.add_argument("--read", type=Path, help="a file of the first of these rows, at most all, from another machine")
    p.add_argument("--write-only", action="store_true", help="without restoring the rows")
    p.add_argument("--cost", type=int, default=0, help="rows to measure the cost of rounding on")
    for p in commands.choices.values():
        p.add_argument("--out", type=Path)
    args = parser.parse_args(argv)
    record = environment(" ".join(["python -m benchmarks.codec", *argv]), 0)
    results = ROOT / "results" / "bench"
    if args.name == "frontier":  # a folder, since it keeps a file
        args.out = args.out or results
    ways = {
        "sizes": sizes,
        "coders": coders,
        "trips": trips,
        "memory": memory,
        "exchange": exchange,
        "frontier": frontier,
    }
    record |= ways[args.name](args)
    own = {"exchange": lambda: f"-{device_name()}"}
    own |= {"sizes": lambda: f"-{Path(args.model).stem}", "frontier": lambda: f"-{device_name()}"}
    name = f"codec-{args.name}{own.get(args.name, str)()}.json"
    out = args.out / name if args.name == "frontier" else args.out or results / name
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps({k: v for k, v in record.items() if k not in ("versions", "threads", "device")}, indent=1))
    return record


if __name__ == "__main__":
    main()

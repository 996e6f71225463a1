"""How costs grow: processor seconds of training, scoring and sampling against n_x, n_h, rows and samples.

python -m benchmarks.growth     results/bench/growth.json, which docs/figures.py draws

One quantity varies at a time; the others stay as in `BASE`. Beside each time stands that of its matrix products alone,
at the rate of a large product in the same run. Processor time, since it is the same on a busy machine.
"""

import argparse
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp

from benchmarks import sizes, training
from benchmarks.measure import ROOT, device_name, environment
from darn.config import Training
from darn.inference import likelihood, sampling
from darn.paper.results import write
from darn.training import Hyper, Program


@dataclasses.dataclass(frozen=True)
class Case:
    """What is trained, scored and sampled."""

    n_x: int = 256
    n_h: int = 64
    rows: int = 1024
    samples: int = 64  # of the code, of each row that is scored

    @property
    def size(self) -> sizes.Size:
        return sizes.Size("linear", self.n_x, self.n_h, 100, "linear", 0.2)


BASE = Case()
VALUES = {"n_x": (64, 128, 256, 512), "n_h": (16, 32, 64, 128), "rows": (64, 256, 1024, 4096)}
VALUES["samples"] = VALUES["rows"]
TINY = {"n_x": (8, 16)}


def works(case: Case) -> dict[str, tuple[Callable[[], object], float]]:
    """What is timed, and the multiply-adds that it takes at least."""
    size, own = case.size, case.size.products
    model, x = size.random(0), size.rows(case.rows, 0)
    config = Training(batch=min(64, case.rows), seed=0)
    epochs = training.epochs(Program(model, config, case.rows), Hyper.of(config), model, x)
    score = lambda: likelihood.importance(model, x, n_samples=case.samples, repeats=1)  # noqa: E731
    # A code is drawn and weighed: the encoder once a row, the decoder and the prior for every sample.
    scored = own["h_given_x"] + own["x"] + case.samples * (own["h"] + own["x_given_h"])
    found = {
        "an epoch of training": (lambda: epochs(1), 3 * case.rows * sum(own.values())),
        "scoring": (score, case.rows * scored),
        "sampling": (lambda: sampling.sample(model, case.rows), case.rows * (own["h"] + own["x_given_h"] + own["x"])),
    }
    return {"scoring": found["scoring"]} if case.samples != BASE.samples else found


def timed(run: Callable[[], object], repeats: int, seconds: float) -> dict:
    """Medians of seconds of one call, as long repeats of many calls have them."""
    run()  # compiles
    times, processor = [], []
    for _ in range(repeats):
        count, start, before = 0, time.perf_counter(), time.process_time()
        while not count or time.perf_counter() - start < seconds:
            jax.block_until_ready(run())
            count += 1
        times.append((time.perf_counter() - start) / count)
        processor.append((time.process_time() - before) / count)
    return {"seconds": statistics.median(times), "processor_seconds": statistics.median(processor)}


def main(argv: list[str] | None = None) -> dict:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser("python -m benchmarks.growth", description="Times work of growing size.")
    parser.add_argument("--quick", action="store_true", help="tiny models: does it run?")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench" / f"{device_name()}-growth.json")
    args = parser.parse_args(argv)
    record = environment(" ".join(["python -m benchmarks.growth", *argv]), 0)
    effort = (1, 0.0) if args.quick else (5, 0.2)
    n = 256 if args.quick else 2048
    square, multiply = jnp.ones((n, n)), jax.jit(jnp.matmul)
    rate = n**3 / timed(lambda: multiply(square, square), *effort)["processor_seconds"]
    record |= {"products_a_processor_second": rate, "base": vars(BASE), "rows": []}
    values = TINY if args.quick else VALUES
    cases = dict.fromkeys(dataclasses.replace(BASE, **{k: v}) for k, all_of in values.items() for v in all_of)
    for case in cases:
        for name, (run, products) in works(case).items():
            took = timed(run, *effort)
            row = {"work": name, **vars(case), **took, "seconds_of_products": products / rate}
            record["rows"].append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
        write(args.out, record)
    return record


if __name__ == "__main__":
    main()

"""The package's own drawing and weighing on an accelerator, beside what the machine can do at most.

    python -m benchmarks.h200 [--only drawing|weighing] [--quick] [--out FILE]

Drawing: rows of 784 linear-autoregressive units, 100,000 a call as packed bits on the host and 1,000 a call that stay
on the device, each compared with sums in float64 by NumPy. Weighing: importance weights of 784/500/500, by precision of
the products, each compared with products in full float32.

results/bench/h200-kernels.json is the record of other ways to do the same, which were tried once and lost, except for
the kernel of the weights, which won there but draws other codes than the package.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import sizes
from benchmarks.measure import ROOT, device_name, environment
from darn import zoo
from darn.batching import row_keys
from darn.inference import likelihood, sampling
from darn.nn._walk_kernel import has_kernel, on_grid, to_grid
from darn.random import uniform

# Products of half-precision inputs with float32 sums: the mantissa has the ten bits of TF32, which is the default.
PRECISIONS = ("highest", "default", "F16_F16_F32", "BF16_BF16_F32")


class Run:
    """What is measured: printed and written as it comes, one failure not ending the others."""

    def __init__(self, out: Path, command: str, quick: bool):
        self.out, self.quick = out, quick
        self.record: dict[str, Any] = environment(command, 0) | {"limits": {}, "found": []}
        out.parent.mkdir(parents=True, exist_ok=True)

    def seconds(self, once: Callable, *args) -> list[float]:
        """Of the first call, which compiles, and then of each of seven."""
        each = []
        for _ in range(3 if self.quick else 8):
            start = time.perf_counter()
            jax.block_until_ready(once(*args))
            each.append(time.perf_counter() - start)
        return each

    def limit(self, name: str, amount: float, once: Callable, *args):
        self.record["limits"][name] = rate = amount / statistics.median(self.seconds(once, *args)[1:])
        print(f"at most {rate:.4g} {name}/s", flush=True)

    def time(self, name: str, amount: float, once: Callable, check: Callable, needs: dict[str, float]):
        """Times one call of `once`; `check(result)` returns what to note about it, `needs` is what a unit takes."""
        found: dict[str, Any] = {"name": name}
        try:
            first, *each = self.seconds(once)
            found |= {"first_call_seconds": first, "seconds": each, "rate": amount / statistics.median(each)}
            found["share_of_limit"] = {k: v * found["rate"] / self.record["limits"][k] for k, v in needs.items()}
            found["check"] = check(once())
        except Exception as error:
            found["error"] = f"{type(error).__name__}: {str(error)[:1000]}"
        self.record["found"].append(found)
        self.out.write_text(json.dumps(self.record, indent=1) + "\n")
        print(json.dumps({k: v for k, v in found.items() if k != "seconds"}), flush=True)


def limits(run: Run):
    n = 256 if run.quick else 8192
    for name, dtype in (("products", jnp.float16), ("products_tf32", jnp.float32)):
        a = jax.random.normal(jax.random.key(0), (n, n), dtype)
        run.limit(name, n**3, jax.jit(lambda a: jnp.dot(a, a, preferred_element_type=jnp.float32)), a)
    long = jnp.ones(1 << (16 if run.quick else 29), jnp.float32)
    run.limit("bytes", 8 * long.size, jax.jit(lambda v: v + 1), long)


# ---------------------------------------------------------------- drawing


def by_numpy(model, count: int) -> np.ndarray:
    """The first rows of `sample(model)` with seed 0, by sums in float64, packed."""
    layer = model.decoder[0].layer
    W, scale = on_grid(jnp.tril(layer.W.W, -1))

    @jax.jit
    def inputs(keys):
        def one(key):
            u = uniform(jax.random.split(key, 1)[0], layer.n)
            return to_grid(layer.b - (jnp.log(u) - jnp.log1p(-u)), scale)

        return jax.vmap(one)(keys)

    s = np.asarray(inputs(row_keys(jax.random.key(0), np.arange(count, dtype=np.uint32))), np.float64)
    y, W = np.zeros_like(s), np.asarray(W, np.float64)
    for j in range(layer.n):
        y[:, j] = s[:, j] + y @ W[j] > 0
    return np.packbits(y.astype(bool), axis=-1)


def drawing(run: Run):
    n, few, many = (40, 16, 256) if run.quick else (784, 1000, 100_000)
    k_w, k_b = jax.random.split(jax.random.key(0))
    weights = (jax.random.normal(k_w, (n, n)) / n**0.5, jax.random.normal(k_b, (n,)) - 2)
    model = zoo.fvsbn(n, key=k_w)
    model = eqx.tree_at(lambda m: (m.decoder[0].layer.W.W, m.decoder[0].layer.b), model, weights)
    run.record["has_kernel"] = has_kernel()
    expected = by_numpy(model, min(few, 500))
    needs = {"products": n * (n - 1) / 2}

    def check(found) -> dict:
        rows = np.asarray(found)[: len(expected)]
        return {"rows_compared": len(rows), "rows_unlike_numpy": int((rows != expected).any(axis=1).sum())}

    def on_host():
        return sampling.sample(model, many, packed=True).x

    seed, numbers, together = np.asarray(0), np.arange(few, dtype=np.uint32), 2 if run.quick else 50

    def on_device():
        # One call after the other is queued, as in a program that goes on with the rows on the device.
        return [sampling._draw(model, seed, numbers, (), None, False, True).x for _ in range(together)][-1]

    run.time(f"rows, {many:,} a call, packed, on the host", many, on_host, check, needs)
    run.time(f"rows, {few:,} a call, on the device", few * together, on_device, check, needs)


# ---------------------------------------------------------------- weighing


def weighing(run: Run):
    size = sizes.SMALL[1] if run.quick else sizes.MNIST
    n_rows, n_samples = (4, 64) if run.quick else (100, 100_000)
    model, x = size.random(0), size.rows(n_rows, 0)
    needs = {"products": sum(size.products[k] for k in ("h", "x_given_h"))}
    exact: list[np.ndarray] = []

    def check(log_p) -> dict:
        exact.append(np.asarray(log_p, np.float64))
        off = exact[-1] - exact[0]
        return {"mean_nats_off": float(off.mean()), "most_nats_off": float(np.abs(off).max())}

    def weigh(precision: str):
        with jax.default_matmul_precision(precision):
            return likelihood.importance(model, x, n_samples=n_samples, repeats=1).log_p

    for precision in PRECISIONS:
        name = f"weights, {size.name}, products in {precision}"
        run.time(name, n_rows * n_samples, lambda: weigh(precision), check, needs)  # noqa: B023


def main(argv: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser("python -m benchmarks.h200", description=__doc__)
    parser.add_argument("--only", choices=("drawing", "weighing"))
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run?")
    parser.add_argument("--out", type=Path, help="where the JSON goes; default: results/bench/<device>-draws.json")
    args = parser.parse_args(argv)
    command = "python -m benchmarks.h200" + (f" --only {args.only}" if args.only else "") + " --quick" * args.quick
    run = Run(args.out or ROOT / "results" / "bench" / f"{device_name()}-draws.json", command, args.quick)
    limits(run)
    for name, part in (("drawing", drawing), ("weighing", weighing)):
        if args.only in (None, name):
            part(run)
    return run.record


if __name__ == "__main__":
    main()

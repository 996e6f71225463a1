"""Sampling costs: the orders of growth that the paper states, counted while sampling and timed, at three sizes each."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax
import numpy as np

from darn import provenance
from darn.config import Architecture
from darn.model import Stack
from darn.model_file import load_model
from darn.reproduce._counted import count
from darn.reproduce._results import load, write
from darn.sampling import sample
from darn.zoo import build


@dataclass(frozen=True)
class Cost:
    """One family of models and the paper's formula for it. `make`: (architecture, n_x) at a scale."""

    name: str
    formula: str
    make: Callable[[int], tuple[Architecture, int]]
    weights: Callable[[Architecture, int], float]  # the formula's value


def _plain(n_h, visible, **fields):
    return Architecture(n_h=n_h, n_d=(), visible=visible, **fields)


# Sizes double from one to the next: 98, 196 and 392 visible units, hidden ones in proportion to the paper's.
SCALES = (1, 2, 4)
COSTS = (
    Cost("FVSBN", "n_x^2", lambda k: (_plain((), "linear"), 98 * k), lambda a, n: n * n),
    Cost(
        "NADE",
        "n_x n_d",
        lambda k: (_plain((), "nade", n_nade=(62 * k,)), 98 * k),
        lambda a, n: n * a.n_nade[0],
    ),
    Cost(
        "DARN, autoregressive visible",
        "(n_h + n_x)^2",
        lambda k: (_plain((62 * k,), "linear"), 98 * k),
        lambda a, n: (a.n_h[0] + n) ** 2,
    ),
    Cost(
        "DARN, factorial visible",
        "n_h (n_x + n_h)",
        lambda k: (_plain((62 * k,), "factorial"), 98 * k),
        lambda a, n: a.n_h[0] * (n + a.n_h[0]),
    ),
    Cost(
        "deep DARN, 12 layers",
        "sum over layers of n_d (units above + n_h)",
        lambda k: (Architecture(n_h=(10 * k,) * 12, n_d=(50 * k,), visible="factorial", skip=True), 98 * k),
        lambda a, n: sum(a.n_d[0] * (sum(a.n_h[l:]) + (n, *a.n_h)[l]) for l in range(len(a.n_h))),
    ),
    Cost(
        "EoNADE, 2 hidden layers",
        "n_x n_d^2",
        lambda k: (_plain((), "eonade", n_nade=(62 * k, 62 * k), n_orderings=2), 98 * k),
        lambda a, n: n * a.n_nade[0] * a.n_nade[1],
    ),
)
# Further samplers with a count of their own (name -> function of a stack that returns what `count` does): the sparse
# sampler of fDARN belongs here.
COUNTERS: dict[str, Callable[[Stack], dict]] = {}


def scrambled(model: Stack, seed: int) -> Stack:
    """Random weights of the size that training leaves, so that no unit is certain."""
    rng = np.random.default_rng(seed)
    new = lambda w: (rng.normal(size=w.shape) / max(w.shape[-1], 1) ** 0.5).astype(np.float32)  # noqa: E731
    return jax.tree.map(lambda w: jax.numpy.asarray(new(w)) if eqx.is_inexact_array(w) else w, model)


def timed(model: Stack, batch: int, seconds: float) -> float:
    """Samples a second of the compiled sampler."""
    sample(model, batch)
    rates = []
    for _ in range(3):
        began, drawn = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            sample(model, batch, seed=drawn)
            drawn += batch
        rates.append(drawn / (time.perf_counter() - began))
    return sorted(rates)[1]


def measure(costs=COSTS, *, scales=SCALES, n: int = 10, batch: int = 100, seconds: float = 0.5, progress=None):
    """Yields every family at every scale: operations a sample as counted, how the count grows, samples a second.

    `seconds`: of each timing; 0 for none.
    """
    for cost in costs:
        sizes = []
        for k in scales:
            arch, n_x = cost.make(k)
            model = scrambled(build(arch, n_x, key=jax.random.key(0)), k)
            found = count(model, n, seed=k)
            value = cost.weights(arch, n_x)
            sizes.append(
                {
                    "n_x": n_x,
                    "n_h": list(arch.n_h),
                    "n_d": list(arch.n_d),
                    "n_nade": list(arch.n_nade) if arch.visible in ("nade", "eonade") else None,
                    **found,
                    "formula": value,
                    "operations_by_formula": found["operations"] / value,
                    "samples_per_second": timed(model, batch, seconds) if seconds else None,
                    **{name: f(model) for name, f in COUNTERS.items()},
                }
            )
            if progress is not None:
                progress(f"{cost.name}, n_x = {n_x}")
        # All sizes grow with the scale: a quadratic formula shows as a power of 2.
        power = np.polyfit(np.log(scales), [math.log(s["operations"]) for s in sizes], 1)[0]
        by_formula = np.polyfit(np.log(scales), [math.log(s["formula"]) for s in sizes], 1)[0]
        yield {
            "name": cost.name,
            "formula": cost.formula,
            "power": power,
            "power_of_formula": by_formula,
            "sizes": sizes,
        }


def trained(results: Path, n: int = 20) -> dict[str, dict]:
    """The committed models of binarised MNIST, counted: how much work one of their samples is."""
    found = {}
    for path in sorted((results / "models").glob("*.safetensors")):
        if path.stem.endswith("-mnist") or path.stem.startswith("mnist-"):
            try:
                found[path.stem] = count(load_model(path)[0], n)
            except (KeyError, AttributeError):  # a mixture or another layer that has no walk here
                continue
    return found


def run(results: Path, *, again: bool = False, progress=None, **options) -> dict:
    """Measures into results/costs/costs.json, family by family: an interrupted run goes on, `again` starts anew."""
    path = results / "costs" / "costs.json"
    rows = load(path)["rows"] if path.exists() and not again else []
    origin = {
        "device": provenance.device(),
        "versions": provenance.versions(),
        "commit": provenance.commit(),
        "command": provenance.command(),
    }
    there = {row["name"] for row in rows}
    for row in measure([c for c in COSTS if c.name not in there], progress=progress, **options):
        rows.append(row)
        write(path, {"rows": rows, "trained": {}, **origin})
    record = {"rows": rows, "trained": trained(results), **origin}
    write(path, record)
    return record


def lines(record: dict) -> list[str]:
    """The costs as a table."""
    head = f"{'model':30} {'formula':42} {'n_x':>5} {'operations':>12} {'of formula':>10} {'samples/s':>10}  growth"
    out = [head]
    for row in record["rows"]:
        for i, s in enumerate(row["sizes"]):
            first = (row["name"], row["formula"]) if i == 0 else ("", "")
            growth = f"  scale^{row['power']:.2f} (formula: {row['power_of_formula']:.2f})" if i == 0 else ""
            share = f"{s['operations_by_formula']:.2f}"
            rate = f"{s['samples_per_second']:,.0f}" if s["samples_per_second"] else "-"
            out.append(
                f"{first[0]:30} {first[1]:42} {s['n_x']:>5} {s['operations']:>12,.0f} {share:>10} {rate:>10}{growth}"
            )
    for name, found in record["trained"].items():
        out.append(f"{name} as trained: {found['operations']:,.0f} weight operations a sample")
    return [
        *out,
        "",
        f"operations: weights multiplied or added for one sample, counted while sampling; {record['device']}",
    ]

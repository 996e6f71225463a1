"""Sampling costs: the growth rates that the paper states, counted while sampling and timed, at three sizes each."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from darn.config import Architecture
from darn.errors import DarnError
from darn.files import read_record
from darn.inference import sparse
from darn.inference.sampling import sample
from darn.model import Stack
from darn.model_file import load_model
from darn.paper.counted import count
from darn.paper.results import model_of, write
from darn.paper.rows import MNIST, PAPER
from darn.runs import provenance
from darn.zoo import build


@dataclass(frozen=True)
class Cost:
    """One family of models and the paper's formula for it. `make`: (architecture, n_x) at a scale."""

    name: str
    formula: str
    make: Callable[[int], tuple[Architecture, int]]
    weights: Callable[[Architecture, int], float]  # the formula's value
    active: float = 0.0  # fraction of hidden units that are on, for the sparse sampler; 0: use the dense one


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
        "fDARN, 5% active",
        "n_s (n_x + n_h)",
        lambda k: (_plain((50 * k,), "factorial"), 98 * k),
        lambda a, n: 0.05 * a.n_h[0] * (n + a.n_h[0]),
        active=0.05,
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


def scrambled(arch: Architecture, n_x: int, seed: int) -> Stack:
    """A stack with random weights of about the size of trained ones, so that no unit is certain."""
    rng = np.random.default_rng(seed)
    make = partial(build, arch, n_x, key=jax.random.key(0))
    # The weights to start from are not drawn, which takes long for many sizes; orders of units are.
    model = eqx.filter_jit(make)() if arch.visible == "eonade" else eqx.filter_eval_shape(make)
    new = lambda w: (rng.normal(size=w.shape) / max(w.shape[-1], 1) ** 0.5).astype(np.float32)  # noqa: E731
    is_weight = lambda w: hasattr(w, "dtype") and np.issubdtype(w.dtype, np.floating)  # noqa: E731
    return jax.tree.map(lambda w: jax.device_put(new(w)) if is_weight(w) else w, model)


def sparsened(model: Stack, active: float) -> Stack:
    """The stack with a prior under which about the fraction `active` of its units is on."""
    top: Any = model.decoder[-1].layer  # linear, as that of every stack here
    free = (jax.numpy.full_like(top.b, math.log(active / (1 - active))), 0.1 * top.W.W)
    return eqx.tree_at(lambda m: (m.decoder[-1].layer.b, m.decoder[-1].layer.W.W), model, free)


def count_sparse(model: Stack, n: int = 1000, seed: int = 0) -> dict:
    """What `count` returns, for the sparse sampler, which counts the weights it adds."""
    found = sparse.sample(model, n, seed=seed)
    added = float(found.additions.mean())
    on = (float(found.x.sum() / n), float(sum(h.sum() for h in found.h) / n))
    return {"operations": added, "multiplied": 0, "added": added, "samples": n, "visible_on": on[0], "hidden_on": on[1]}


def timed(model: Stack, batch: int, seconds: float, sample=sample) -> float:
    """Samples per second of a compiled sampler: the median of three timings of `seconds` each."""
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
    """Counts and times every family of models at every scale.

    Args:
        costs: The families.
        scales: Factors of the smallest size.
        n: Samples that are counted.
        batch: Samples drawn at once when timing.
        seconds: Duration of each timing; 0 for none.
        progress: Called with a line of text after each measurement.

    Yields:
        For each family its operations per sample by size, the power with which they grow, and samples per second.
    """
    for cost in costs:
        sizes = []
        for k in scales:
            arch, n_x = cost.make(k)
            model = scrambled(arch, n_x, k)
            if cost.active:
                model, draw = sparsened(model, cost.active), sparse.sample
                found = count_sparse(model, 100 * n, seed=k)
            else:
                draw, found = sample, count(model, n, seed=k)
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
                    "samples_per_second": timed(model, batch, seconds, draw) if seconds else None,
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


def trained(results: Path, n: int = 20, seconds: float = 0.5, progress=None) -> dict[str, dict]:
    """Operations per sample and samples per second of the committed models of binarised MNIST, by row.

    A model that the sparse sampler supports is counted and timed with it, and timed with the dense one as well.
    """
    found = {}
    for row in PAPER:
        path = model_of(results, row)
        if row.how != "recipe" or row.data != MNIST or not path.exists():
            continue
        model = load_model(path)[0]
        dense = timed(model, 1000, seconds) if seconds else None
        try:
            entry = count_sparse(model)
            entry |= {"samples_per_second": timed(model, 1000, seconds, sparse.sample) if seconds else None}
            entry["dense_samples_per_second"] = dense
        except DarnError:  # the sparse sampler takes linear layers without nets only
            entry = count(model, n) | {"samples_per_second": dense}
        found[row.name] = entry
        if progress is not None:
            progress(f"{row.name} as trained")
    return found


def run(results: Path, *, again: bool = False, progress=None, **options) -> dict:
    """Measures into results/costs/costs.json, family by family.

    Args:
        results: The folder of the results.
        again: Measure families again that are there already; otherwise an interrupted run continues.
        progress: Called with a line of text after each measurement.
        **options: Those of `measure`.

    Returns:
        The record, as written.
    """
    path = results / "costs" / "costs.json"
    rows = read_record(path)["rows"] if path.exists() and not again else []
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
    made = trained(results, seconds=options.get("seconds", 0.5), progress=progress)
    record = {"rows": rows, "trained": made, **origin}
    write(path, record)
    return record


def lines(record: dict) -> list[str]:
    """The record as a table for the terminal."""
    head = f"{'model':30} {'formula':42} {'n_x':>5} {'operations':>12} {'of formula':>10} {'samples/s':>10}  growth"
    out = [head]
    for row in record["rows"]:
        for i, s in enumerate(row["sizes"]):
            first = (row["name"], row["formula"]) if i == 0 else ("", "")
            growth = f"  scale^{row['power']:.2f} (formula: {row['power_of_formula']:.2f})" if i == 0 else ""
            ratio = f"{s['operations_by_formula']:.2f}"
            rate = f"{s['samples_per_second']:,.0f}" if s["samples_per_second"] else "-"
            out.append(
                f"{first[0]:30} {first[1]:42} {s['n_x']:>5} {s['operations']:>12,.0f} {ratio:>10} {rate:>10}{growth}"
            )
    for name, found in record["trained"].items():
        rate, dense = found.get("samples_per_second"), found.get("dense_samples_per_second")
        said = f", {rate:,.0f} samples/s" if rate else ""
        said += f" (the dense sampler: {dense:,.0f})" if dense else ""
        out.append(f"{name} as trained: {found['operations']:,.0f} weight operations a sample{said}")
    return [
        *out,
        "",
        f"operations: weights multiplied or added for one sample, counted while sampling; {record['device']}",
    ]

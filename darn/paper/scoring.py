"""How a row is scored: the paper's protocol, the quick figure, baselines, the likelihood of an RBM."""

import dataclasses
import lzma
import math
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from darn import data
from darn.errors import DarnError
from darn.inference import likelihood, sampling
from darn.jsonable import decode
from darn.model import Stack
from darn.nn import causal_maps
from darn.paper import rbm
from darn.paper.rows import QUICK, Row
from darn.runs.baselines import independent_nll
from darn.runs.dataset import scored_rows
from darn.runs.run import Run


@dataclass(frozen=True)
class Protocol:
    """Importance samples and repeats: the paper's 100,000, ten times, if there is an accelerator."""

    n_samples: int
    repeats: int
    seed: int = 0
    method: str = "auto"  # "auto": exact for up to 16 stochastic units

    @staticmethod
    def default(n_samples: int | None = None, repeats: int = 10, method: str = "auto") -> "Protocol":
        """The paper's protocol; 1,000 samples on a CPU by default."""
        if n_samples is None:
            n_samples = 1000 if jax.default_backend() == "cpu" else 100_000
        return Protocol(n_samples, repeats, method=method)

    def of(self, row: Row) -> "Protocol":
        """The protocol of a row, which may have its own samples and repeats."""
        if row.scoring is None:
            return self
        return dataclasses.replace(self, n_samples=row.scoring[0], repeats=row.scoring[1], method="importance")


def n_parameters(model) -> int:
    """Weights that training may change; of a causal map, those in use."""
    weights = [w for w in jax.tree.leaves(model) if np.issubdtype(w.dtype, np.floating)]
    total = sum(w.size for w in weights)
    for m in causal_maps(model):  # only a part of its arrays is in use
        total += int(jnp.count_nonzero(m.ones().weights())) - sum(w.size for w in jax.tree.leaves(m))
    return total


def score(model: Stack, x, context, protocol: Protocol) -> likelihood.Likelihood:
    """The likelihood of rows by the protocol; a model without a code is scored exactly by any."""
    few = sum(model.n_h) <= likelihood.EXACT_LIMIT
    if protocol.method == "exact" or (few and protocol.method == "auto") or not model.n_layers:
        return likelihood.exact(model, x, context=context)
    S, R = protocol.n_samples, protocol.repeats
    return likelihood.importance(model, x, context=context, n_samples=S, repeats=R, seed=protocol.seed)


def quick(run: Run, row: Row, method: str = "auto", seed: int = 0) -> dict:
    """The figure that anyone can reproduce in minutes on a CPU: `darn eval MODEL --quick`.

    It uses the method of the full figure: 2^16 codes with a NADE take minutes on a GPU and hours on a CPU.
    """
    every, n_samples = row.quick
    x, context = scored_rows(run.rows().take(slice(None, None, every)))
    found = score(run.model, x, context, Protocol(n_samples, 1, seed, method))
    return {
        "rows": len(x),
        "every": every,
        "n_samples": 0 if found.method == "exact" else n_samples,
        "seed": seed,
        "nll": found.nll,
        "nll_ci95": found.nll_ci95,
    }


def active_units(run: Run, n: int = 10_000) -> dict:
    """How many stochastic units of a sparse model are on, by layer: in ancestral samples and in codes of x."""
    x, context = scored_rows(run.rows())
    drawn = sampling.sample(run.model, n, context=None if context is None else context[:n], seed=0).h
    code = sampling.encode(run.model, x, context=context).q
    return {
        "ancestral": [float(h.sum(axis=1).mean()) for h in drawn],
        "encoded": [float(q.sum(axis=1).mean()) for q in code],
        "samples": n,
    }


def xz_nats(packed: np.ndarray) -> float:
    """Nats per row that `xz -9e` takes for bit-packed rows in the given order."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
    size = len(lzma.compress(np.ascontiguousarray(packed).tobytes(), lzma.FORMAT_XZ, filters=filters))
    return size * 8 * math.log(2) / len(packed)


def baselines(splits: data.Splits) -> dict[str, float]:
    """Nats per test row of two baselines: independent columns, and a general-purpose compressor."""
    return {
        "independent": independent_nll(splits.train, splits.test.unpack()),
        "xz -9e": xz_nats(splits.test.values),
    }


# ---------------------------------------------------------------- RBM


@dataclass(frozen=True)
class _Data:
    name: str


@dataclass(frozen=True)
class _About:
    """What the file of an RBM says of its training rows."""

    data: _Data
    mean: tuple[float, ...]


def score_rbm(file: Path, chains: int, temperatures: int, *, every: int = 1, seed: int = 0) -> dict:
    """-log p of the test rows of a stored RBM's data, with the interval from the estimate of log Z."""
    machine, info = rbm.load(file)
    try:
        about = decode(_About, info, "its info", strict=False)
        if len(about.mean) != len(machine.b):
            raise DarnError("its means are not of its units")
        rows = data.load_rows(about.data.name, split="test", n=len(machine.b))
    except DarnError as e:
        raise DarnError(f"{file} cannot be scored: {e}") from e
    test = rows.take(slice(None, None, every)).unpack()
    z = rbm.log_z(machine, np.asarray(about.mean), chains=chains, temperatures=temperatures, seed=seed)
    return {
        "method": f"annealed importance sampling of log Z, {chains} chains, {temperatures} temperatures",
        "rows": len(test),
        "nll": rbm.mean_free_energy(machine, test) + z.value,
        "nll_ci95": (z.high - z.low) / 2,
        "ess": {"mean": z.ess, "min": z.ess},
        "n_samples": chains,
        "log_z": dataclasses.asdict(z),
    }


def quick_rbm(file: Path, seed: int = 0) -> dict:
    """The RBM's quick figure: every 10th row, log Z by a short annealing."""
    every, steps = QUICK
    found = score_rbm(file, 100, steps, every=every, seed=seed)
    return {"every": every, "seed": seed} | {k: found[k] for k in ("rows", "n_samples", "nll", "nll_ci95")}

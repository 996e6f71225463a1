"""What the report page shows of a run, as arrays: a model and its rows in, plain numbers out."""

from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darn.batching import map_rows, row_keys, rows_within
from darn.devices import everywhere
from darn.errors import DarnError
from darn.files import read_bytes
from darn.inference import likelihood, sampling
from darn.inference.code import lengths
from darn.inference.likelihood import PRECISION, Likelihood
from darn.jsonable import parse
from darn.model import Stack
from darn.nn import softplus
from darn.report._recipe import About
from darn.runs.info import MAX_JSON
from darn.runs.run import Run
from darn.training import read_looks

SAMPLES = 1000  # drawn to compare with the data column by column; the first of them are shown


@dataclass(frozen=True)
class Scored:
    """Rows of a split under a model."""

    run: Run
    split: str
    n_rows: int  # in the whole split
    index: np.ndarray  # which of them were scored, from 0
    x: np.ndarray  # (N, n_x)
    context: np.ndarray | None
    found: Likelihood
    x_given_h: np.ndarray  # (N,) L(x|h), nats
    h: np.ndarray  # (N, n_layers) L(h) by layer, nats
    history: list[dict] = field(default_factory=list)  # metrics.jsonl


def scored(
    run: Run,
    *,
    split: str = "test",
    limit: int = 1000,
    n_samples=None,
    repeats=5,
    precision=PRECISION,
    seed=0,
    progress=None,
):
    """The rows of `split` (at most `limit`, evenly spaced, since some sets are sorted) and what they cost."""
    rows = run.rows(split=split)
    index = np.unique(np.linspace(0, len(rows) - 1, min(limit, len(rows))).round().astype(int))
    chosen = rows.take(index)
    x, context = chosen.unpack(), chosen.context
    options: dict[str, Any] = {"context": context, "log_density": chosen.log_density}
    options["progress"] = None if progress is None else progress.update
    if progress is not None:
        repeated = n_samples is not None and likelihood.method_for(run.model) == "importance"
        progress.total = (progress.total or 0) + len(x) * (repeats if repeated else 1)
    options |= {"n_samples": n_samples, "repeats": repeats, "precision": precision, "seed": seed}
    found = likelihood.evaluate(run.model, x, **options)
    x_given_h, h = lengths(run.model, x, context, seed=seed)
    if chosen.log_density is not None:
        x_given_h = x_given_h - chosen.log_density
    return Scored(run, split, len(rows), index, x, context, found, x_given_h, h, history(run))


def history(run: Run) -> list[dict]:
    """The lines of metrics.jsonl; none for a model file alone, or where a line is not as training writes it."""
    folder = run.path.parent if run.path.name == "model.safetensors" else run.path
    path = folder / "metrics.jsonl"
    if not path.is_file():
        return []
    try:
        lines = read_bytes(path, MAX_JSON).splitlines()
        rows, looks = [], []
        for line in lines:  # one after the other, so that a file of anything else is not held in memory
            rows.append(parse(line, "a line", MAX_JSON))
            looks += read_looks(rows[-1:])
    except DarnError:  # cut short by a full disk: the page does without
        return []
    about, L = About(run), run.model.n_layers
    shapes = {"x_given_h": (), "h": (L,)} | ({"weighted": ()} if about.weighted else {})
    shapes |= {"active": (L,)} if about.sparse else {}
    right = all(name in v.valid and np.shape(v.valid[name]) == s for v in looks for name, s in shapes.items())
    return rows if right else []


@eqx.filter_jit
def _unit_costs(model, x, context, key, numbers):
    def one(x, context, key):
        h = model.encode(x, context, key=key)
        layer, c = model.decoder[0].layer, model.above(0, h, context)
        a = layer.logits(x, c)
        return softplus(a) - x * a

    return jax.vmap(one)(x, context, row_keys(key, numbers))


def unit_costs(model: Stack, x, context=None, *, seed: int = 0) -> np.ndarray | None:
    """The nats that each visible unit of each row costs, (N, n_x): the parts of L(x|h).

    None for a layer that averages over several orders: there a unit has no cost of its own.
    """
    if model.decoder[0].layer.n_orders > 1:
        return None
    key = jax.random.fold_in(jax.random.key(seed), 2)
    size = rows_within(model.decoder[0].layer.row_floats, len(x), len(x), 4_000_000)

    model = everywhere(model)

    def part(numbers, x, context):
        return _unit_costs(model, sampling.as_floats(x), context, key, jnp.asarray(numbers))

    return map_rows(part, len(x), size, x, context, numbered=True)


def draws(s: Scored, *, seed: int = 1) -> sampling.Samples:
    """Samples; a model with a context gets those of the scored rows, one after the other."""
    context = None if s.context is None else s.context[np.arange(SAMPLES) % len(s.context)]
    return sampling.sample(s.run.model, SAMPLES, seed=seed, context=context)


def responses(h: np.ndarray, x: np.ndarray) -> np.ndarray:
    """For each unit of a layer (N, n_h): the mean of rows with the unit on less the mean with it off, (n_h, n_x)."""
    h, x = np.asarray(h, np.float32), np.asarray(x, np.float32)
    on = h.sum(axis=0)[:, None]
    with_on, total = h.T @ x, x.sum(axis=0)[None]
    mean_on, mean_off = with_on / np.maximum(on, 1), (total - with_on) / np.maximum(len(h) - on, 1)
    return np.where((on > 0) & (on < len(h)), mean_on - mean_off, 0)


def from_layer(s: Scored, drawn: sampling.Samples, n: int, *, seed: int = 2) -> list[np.ndarray]:
    """For each hidden layer from the top: n rows (n, n_x) that share that layer of a sample, and those above it."""
    model = s.run.model
    context = None if s.context is None else np.repeat(s.context[:1], n, axis=0)
    shared = [np.repeat(y[:1], n, axis=0) for y in drawn.h]
    return [
        sampling.sample(model, n, seed=seed + l, h=tuple(shared[l:]), context=context).x
        for l in range(model.n_layers - 1, -1, -1)
    ]

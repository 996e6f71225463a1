"""Bias and variance of the gradient estimators, against the gradient by enumeration of every code.

For each row of a toy distribution the estimate is drawn many times. With g the exact gradient of the expected
description length and m the mean of the draws, over all rows together: relative bias |m - g| / |g|, which an
unbiased estimator shows too, at the size of its Monte Carlo noise (`floor`); variance: of one estimate, the
sum over weights, the mean over rows.
"""

import argparse
import json
import sys
from itertools import product
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measure import ROOT, environment
from benchmarks.sizes import jit_cheaply, scrambled
from darn.config import Architecture, Training
from darn.data import Rows
from darn.inference.objective import make_loss
from darn.training import DeviceRows, Hyper, Program
from darn.zoo import build

# name -> (estimator, n_samples, log_q, passes through the decoder for one estimate, by number of layers)
ESTIMATORS = {
    "darn, log q sampled": ("darn", 1, "sampled", lambda L: 1),
    "darn, entropy": ("darn", 1, "entropy", lambda L: 1),
    "straight-through, log q sampled": ("straight_through", 1, "sampled", lambda L: 1),
    "straight-through, entropy": ("straight_through", 1, "entropy", lambda L: 1),
    "REINFORCE, leave one out, K = 2": ("reinforce", 2, "sampled", lambda L: 2),
    "DisARM, one pair a layer": ("disarm", 2, "sampled", lambda L: 2 * L),
}
N_X, DEPTHS = 6, {"one stochastic layer": (4,), "two stochastic layers": (4, 3)}
CHUNK = 500  # estimates of one row in one program


def toy_rows(n: int, seed: int) -> np.ndarray:
    """Eight patterns of six bits, one bit in twenty flipped."""
    rng = np.random.default_rng(seed)
    patterns = rng.permutation([[(i >> k) & 1 for k in range(N_X)] for i in range(2**N_X)])[:8]
    return (patterns[np.arange(n) % 8] ^ (rng.random((n, N_X)) < 0.05)).astype(np.uint8)


def make_models(n_h: tuple[int, ...], seed: int):
    """(as training starts, with random weights everywhere)."""

    @jit_cheaply
    def make(k_start, k_random):
        start = build(Architecture(n_h=n_h, n_d=(8,)), N_X, key=k_start)
        return start, scrambled(start, k_random, 0.5)

    return make(*jax.random.split(jax.random.key(seed)))


def train(model, epochs: int, seed: int):
    """The model after a short training on the toy rows."""
    x = toy_rows(2000, seed)
    config = Training(batch=100, lr=1e-3, seed=seed)
    program, hyper = Program(model, config, len(x)), Hyper.of(config)
    state, _ = program.epochs(program.start(model, hyper), hyper, DeviceRows.put(Rows.from_array(x)), 0, epochs)
    return program.model(state.params)


def description_length(model, x):
    """The expected description length of one row, by enumeration."""
    codes = jnp.asarray(list(product((0.0, 1.0), repeat=sum(model.n_h))))
    codes = tuple(jnp.split(codes, np.cumsum(model.n_h)[:-1], axis=1))
    log_q = jax.vmap(lambda h: model.log_q(x, h))(codes)
    return jnp.sum(jnp.exp(log_q) * (log_q - jax.vmap(lambda h: model.log_p(x, h))(codes)))


def flat(grads) -> dict[str, jax.Array]:
    """(rows, ..., weights) of each half of the stack."""
    halves = {"encoder": grads.encoder, "decoder": grads.decoder}
    join = lambda tree: jnp.concatenate([w.reshape(*w.shape[:1], -1) for w in jax.tree.leaves(tree)], 1)  # noqa: E731
    return {half: join(tree) for half, tree in halves.items()}


@jit_cheaply
def exact_gradients(model, x):
    return flat(jax.vmap(lambda row: jax.grad(description_length)(model, row))(x))


def make_moments(estimator: str, n_samples: int, log_q: str):
    """A program: the mean and variance over CHUNK estimates for every row."""
    loss = make_loss(estimator, n_samples=n_samples, log_q=log_q)

    @jit_cheaply
    def moments(model, x, key):
        price = jnp.zeros(model.n_layers)

        def one(row, key):
            return jax.grad(lambda m: loss(m, row, None, price, key=key)[0])(model)

        def of_row(row, key):
            draws = flat(jax.vmap(lambda k: one(row, k))(jax.random.split(key, CHUNK)))
            return {half: (jnp.mean(g, 0), jnp.var(g, 0, ddof=1)) for half, g in draws.items()}

        return jax.vmap(of_row)(x, jax.random.split(key, len(x)))

    return moments


def score(exact, moments, model, x, chunks: int, key) -> dict:
    """The figures of one estimator on one model."""
    found = [jax.device_get(moments(model, x, jax.random.fold_in(key, i))) for i in range(chunks)]
    out = {}
    for half, g in exact.items():
        means, variances = (np.mean([f[half][i] for f in found], axis=0, dtype=np.float64) for i in (0, 1))
        size = np.linalg.norm(g)
        out[half] = {
            "relative_bias": float(np.linalg.norm(means - g) / size),
            "floor": float(np.sqrt(variances.sum() / (chunks * CHUNK)) / size),
            "variance": float(variances.sum(axis=1).mean()),
            "squared_norm": float(size**2 / len(x)),
        }
    return out


def measure(chunks: int, epochs: int, seed: int) -> list[dict]:
    """A line for every estimator, depth and state of training."""
    x = jnp.asarray(toy_rows(8, seed), jnp.float32)
    results = []
    for depth, n_h in DEPTHS.items():
        start, random = make_models(n_h, seed)
        models = {"random": random, "trained": train(start, epochs, seed)}
        exact = {state: jax.device_get(exact_gradients(model, x)) for state, model in models.items()}
        for name, (estimator, n_samples, log_q, passes) in ESTIMATORS.items():
            moments = make_moments(estimator, n_samples, log_q)
            for state, model in models.items():
                line = {"model": depth, "weights": state, "estimator": name, "passes": passes(len(n_h))}
                line |= score(exact[state], moments, model, x, chunks, jax.random.key(seed + 2))
                results.append({**line, "n_h": n_h, "draws_per_row": chunks * CHUNK})
    return results


def table(results: list[dict]) -> str:
    """Markdown, a section for every model."""
    lines = []
    for model, weights in dict.fromkeys((r["model"], r["weights"]) for r in results):
        lines += [
            f"\n**{model}, {weights} weights**\n",
            "| estimator | passes | encoder: bias (floor) | variance | decoder: bias (floor) | variance |",
            "|---|---:|---:|---:|---:|---:|",
        ]
        for r in results:
            if (r["model"], r["weights"]) == (model, weights):
                cells = [
                    f"{h['relative_bias']:.3f} ({h['floor']:.3f}) | {h['variance']:.3g}"
                    for h in (r["encoder"], r["decoder"])
                ]
                lines.append(f"| {r['estimator']} | {r['passes']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> dict:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser("python -m benchmarks.estimators", description=__doc__)
    parser.add_argument("--out", type=Path, help="default: results/bench/estimators.json")
    parser.add_argument("--quick", action="store_true", help="few draws: does it run?")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    out = args.out or ROOT / "results" / "bench" / f"estimators{'-quick' if args.quick else ''}.json"
    record = environment(" ".join(["python -m benchmarks.estimators", *argv]), args.seed)
    record["rows"] = measure(*((1, 1) if args.quick else (20, 50)), args.seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n")
    print(table(record["rows"]))
    return record


if __name__ == "__main__":
    main()

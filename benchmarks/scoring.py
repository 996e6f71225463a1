"""Likelihoods: (row, code) pairs per second if exact, weights per second by importance sampling."""

from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp

from benchmarks import sizes
from benchmarks.limits import Needs
from benchmarks.measure import Comparison, Way
from darn.config import Architecture
from darn.inference import likelihood
from darn.zoo import build


def exact(quick: bool, seed: int) -> Iterator[Comparison]:
    small = [sizes.Size("12/8/6 linear", 12, 6, 8, "linear", 0.2)]
    full = [
        sizes.Size("784/100/16 factorial", 784, 16, 100, "factorial", 0.13),
        sizes.Size("112/100/16 linear", 112, 16, 100, "linear", 0.2),
    ]
    n_rows = 10 if quick else 200 if jax.default_backend() == "cpu" else 2000
    for size in small if quick else full:
        model = size.random(seed)
        x = size.rows(n_rows, seed)
        n_codes = 2**size.n_h
        yield Comparison(
            f"exact likelihood, {size.name}",
            "(row, code) pairs/s",
            repeated("likelihood.exact", partial(likelihood.exact, model, x), n_rows * n_codes),
            [row_by_row("vmap(log_p) over codes, row by row", exact_row(size.n_h), model, x, n_codes)],
            sizes={"rows": n_rows, "codes": n_codes, **vars(size)},
            needs=Needs(products=size.n_x),  # x times the logits of the code, which all rows share
        )


def importance(quick: bool, seed: int) -> Iterator[Comparison]:
    size = sizes.SMALL[1] if quick else sizes.MNIST
    n_samples = 100 if quick else 1000 if jax.default_backend() == "cpu" else 100_000  # the paper's S
    n_rows = 10 if quick else 100
    model = size.random(seed)
    x = size.rows(n_rows, seed)
    yield Comparison(
        f"importance sampling, {size.name}, S = {n_samples:,}",
        "weights/s",
        repeated(
            "likelihood.importance",
            partial(likelihood.importance, model, x, n_samples=n_samples, repeats=1),
            n_rows * n_samples,
        ),
        [row_by_row("vmap over samples, row by row", importance_row(n_samples, seed), model, x, n_samples)],
        sizes={"rows": n_rows, "n_samples": n_samples, **vars(size)},
        needs=Needs(products=size.products["h"] + size.products["x_given_h"]),
    )


def nade(quick: bool, seed: int) -> Iterator[Comparison]:
    """A NADE under a code, as the `-ours` rows of Table 1 have it."""
    n_x, n_h, n_nade, n_samples, n_rows = (12, 5, 8, 20, 4) if quick else (126, 32, 1000, 1000, 10)
    architecture = Architecture(n_h=(n_h,), n_d=(n_h,), visible="nade", n_nade=(n_nade,))
    model = sizes.scrambled(build(architecture, n_x, key=jax.random.key(seed)), jax.random.key(seed + 1), 0.05)
    x = (np.random.default_rng(seed).random((n_rows, n_x)) < 0.2).astype(np.uint8)
    score = partial(likelihood.importance, model, x, n_samples=n_samples, repeats=1)
    yield Comparison(
        f"importance sampling, {n_x}/{n_nade}/{n_h} NADE, S = {n_samples:,}",
        "weights/s",
        repeated("likelihood.importance", score, n_rows * n_samples),
        [row_by_row("vmap over samples, row by row", importance_row(n_samples, seed), model, x, n_samples)],
        sizes={"rows": n_rows, "n_samples": n_samples, "n_x": n_x, "n_nade": n_nade, "n_h": n_h},
        # The sum over hidden units, and a product that makes each of them; its division is not counted.
        needs=Needs(products=2 * n_x * n_nade),
    )


def repeated(name: str, once: Callable, amount: int) -> Way:
    """A way that scores all rows in one call; the result is in NumPy, so there is nothing to wait for."""
    return Way(name, lambda n: [once() for _ in range(n)], amount)


def row_by_row(name: str, log_p: Callable, model, x: np.ndarray, amount: int) -> Way:
    """A jitted function of one row, called for each."""
    log_p = jax.jit(log_p)
    rows = [jnp.asarray(row, jnp.float32) for row in x]
    return Way(name, lambda n: [float(log_p(model, rows[i % len(rows)], i)) for i in range(n)], amount)


def exact_row(n_h: int):
    def log_p(model, x, i):
        codes = ((jnp.arange(2**n_h)[:, None] >> jnp.arange(n_h)[None]) & 1).astype(jnp.float32)
        return logsumexp(jax.vmap(lambda h: model.log_p(x, (h,)))(codes))

    return log_p


def importance_row(n_samples: int, seed: int):
    def log_p(model, x, i):
        def log_weight(key):
            h = model.encode(x, key=key)
            return model.log_p(x, h) - model.log_q(x, h)

        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), i), n_samples)
        return logsumexp(jax.vmap(log_weight)(keys)) - jnp.log(n_samples)

    return log_p

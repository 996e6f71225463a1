"""Baselines: fitted by counting or by EM, scored by the same code as every other stack."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import states

from darn.data import Rows
from darn.inference.likelihood import exact
from darn.runs.baselines import best_mixture, em_mixture, independent, independent_nll


def two_kinds(n_rows: int, seed: int) -> np.ndarray:
    """Rows of two kinds, near 00000 and near 11111, beside a column that is always 1 and one that is always 0."""
    rng = np.random.default_rng(seed)
    kind = rng.random((n_rows, 1)) < 0.5
    noisy = (rng.random((n_rows, 5)) < 0.1) ^ kind
    return np.concatenate([noisy, np.ones((n_rows, 1), bool), np.zeros((n_rows, 1), bool)], axis=1).astype(np.uint8)


def test_independent_is_the_smoothed_column_means():
    x = two_kinds(50, 0)
    p = (x.sum(axis=0) + 1) / (len(x) + 2)
    expected = np.mean(np.log(np.where(x == 1, p, 1 - p)).sum(axis=1))
    assert exact(independent(x), x).nll == pytest.approx(-expected, rel=1e-5)


def test_the_figure_alone_is_that_of_the_model():
    x, test = two_kinds(50, 0), two_kinds(20, 1)
    assert independent_nll(Rows.from_array(x), test) == pytest.approx(exact(independent(x), test).nll, rel=1e-5)


@pytest.mark.parametrize("n_rows", [200, 20_000])  # with many rows a constant column's probability rounds to 1
def test_em_finds_the_two_kinds(n_rows):
    x, valid, test = (two_kinds(n, s) for n, s in ((n_rows, 0), (100, 1), (2000, 2)))
    stack = em_mixture(x, valid, 2)
    nll = exact(stack, test).nll
    # One bit for the kind, and five coins that land on the unlikely side one time in ten.
    entropy = np.log(2) - 5 * (0.1 * np.log(0.1) + 0.9 * np.log(0.9))
    assert nll == pytest.approx(entropy, abs=0.15)
    assert nll < exact(independent(x), test).nll - 1
    total = jnp.exp(jax.vmap(stack.log_p)(jnp.asarray(states(7), jnp.float32))).sum()
    assert float(total) == pytest.approx(1, abs=1e-4)


def test_validation_chooses_the_number_of_components():
    k, _ = best_mixture(two_kinds(300, 0), two_kinds(300, 1), sizes=(1, 2, 100))
    assert k == 2
    assert best_mixture(two_kinds(4, 0), two_kinds(4, 1))[0] == 1

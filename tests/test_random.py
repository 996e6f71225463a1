"""Our uniform numbers are JAX's; every order is as likely as any other."""

import math

import jax
import numpy as np
import pytest
from scipy import stats

from darn.random import permutation, uniform


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("n", [1, 2, 33, 784])
def test_bit_for_bit(impl, n):
    key = jax.random.key(n, impl=impl)
    assert (jax.jit(lambda k: uniform(k, n))(key) == jax.random.uniform(key, (n,))).all()


def test_under_vmap():
    keys = jax.random.split(jax.random.key(7), 9)
    expected = jax.vmap(lambda k: jax.random.uniform(k, (5,)))(keys)
    assert (jax.vmap(lambda k: uniform(k, 5))(keys) == expected).all()


@pytest.mark.parametrize("n", [1, 2, 3, 1000, 1 << 14, (1 << 14) + 1])
def test_every_number_has_a_place(n):
    order = np.asarray(permutation(jax.random.key(n), n))
    assert order.dtype == np.int32
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    assert n < 1000 or stats.spearmanr(order, np.arange(n)).pvalue > 1e-3


@pytest.mark.parametrize("n", [2, 4, 5])
def test_every_order_is_as_likely(n):
    orders = jax.vmap(lambda k: permutation(k, n))(jax.random.split(jax.random.key(3), 50_000))
    _, counts = np.unique(np.asarray(orders), axis=0, return_counts=True)
    assert len(counts) == math.factorial(n)
    assert stats.chisquare(counts).pvalue > 1e-3

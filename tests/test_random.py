"""Our uniform numbers are JAX's; every order is as likely as any other."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from darn import random
from darn.random import FEW_BITS, permutation, permutation_by_numpy, permuted, uniform
from darn.shuffle import ROUNDS, Shuffle


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


@pytest.mark.parametrize("n", [1, 2, 1000, 1 << FEW_BITS, (1 << FEW_BITS) + 1])
def test_numpy_gives_the_same_order(n):
    """And, of more numbers than a word has room for, JAX, which ours were made by."""
    key = jax.random.key(n)
    order = np.asarray(permutation(key, n))
    np.testing.assert_array_equal(permutation_by_numpy(key, n), order)
    assert n <= 1 << FEW_BITS or (order == jax.random.permutation(key, n)).all()


@pytest.mark.parametrize("n", [2_600_000, 2_700_000])
def test_numbers_are_sorted_as_often_as_jax_does(n):
    ours, theirs = (
        str(jax.make_jaxpr(lambda key, f=f: f(key, n))(jax.random.key(0)))
        for f in (permutation, jax.random.permutation)
    )
    assert ours.count(" sort[") == theirs.count(" sort[") == (3 if n > 2 ** (64 / 3) else 2)


@pytest.mark.parametrize("n", [2, 4, 5])
def test_every_order_is_as_likely(n):
    orders = jax.vmap(lambda k: permutation(k, n))(jax.random.split(jax.random.key(3), 50_000))
    _, counts = np.unique(np.asarray(orders), axis=0, return_counts=True)
    assert len(counts) == math.factorial(n)
    assert stats.chisquare(counts).pvalue > 1e-3


# ---------------------------------------------------------------- orders of which no list is made


@pytest.mark.parametrize("n", [1, 2, 3, 24, 25, 26, 1000, 65_537])
def test_every_number_has_a_place_without_a_list(n, monkeypatch):
    order = Shuffle.of(n, 5)
    whole = np.asarray(order)
    np.testing.assert_array_equal(np.sort(whole), np.arange(n))
    np.testing.assert_array_equal(order[2:][: n // 2][np.arange(len(whole[2:][: n // 2]))], whole[2:][: n // 2])
    np.testing.assert_array_equal(order[::-3], whole[::-3])
    assert n < 1000 or stats.spearmanr(whole, np.arange(n)).pvalue > 1e-3
    key = jax.random.key(n)
    monkeypatch.setattr(random, "MANY", 0)
    whole = np.asarray(permutation(key, n))
    np.testing.assert_array_equal(np.sort(whole), np.arange(n))
    places = np.arange(n, dtype=np.uint32)[::-2]
    np.testing.assert_array_equal(permuted(key, jnp.asarray(places), n), whole[places])


def test_every_place_is_as_likely_without_a_list():
    """For a number, and for the next one given the place of the first."""
    n, keys = 101, jax.random.split(jax.random.key(3), 20_000)
    orders = np.asarray(jax.vmap(lambda key: permuted(key, jnp.arange(5, dtype=jnp.uint32), n))(keys))
    for j in range(4):
        assert stats.chisquare(np.bincount(orders[:, j])).pvalue > 1e-3
        steps = (orders[:, j + 1] - orders[:, j]) % n
        assert stats.chisquare(np.bincount(steps)[1:]).pvalue > 1e-3


def test_numpy_and_jax_agree_on_an_order():
    keys = np.random.RandomState(5).randint(0, 1 << 32, ROUNDS, np.uint32)
    n = (1 << 31) - 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.random, "bits", lambda *_: jnp.asarray(keys))
        places = np.linspace(0, n - 1, 999).astype(np.uint32)
        found = permuted(jax.random.key(0), jnp.asarray(places), n)
    np.testing.assert_array_equal(np.asarray(found).astype(np.uint32), Shuffle.of(n, 5)[places.astype(np.int64)])

"""Our uniform numbers are JAX's."""

import jax
import pytest

from darn.random import uniform


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("n", [1, 2, 33, 784])
def test_bit_for_bit(impl, n):
    key = jax.random.key(n, impl=impl)
    assert (jax.jit(lambda k: uniform(k, n))(key) == jax.random.uniform(key, (n,))).all()


def test_under_vmap():
    keys = jax.random.split(jax.random.key(7), 9)
    expected = jax.vmap(lambda k: jax.random.uniform(k, (5,)))(keys)
    assert (jax.vmap(lambda k: uniform(k, 5))(keys) == expected).all()

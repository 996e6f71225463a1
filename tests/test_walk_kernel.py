"""Linear units decided with exact sums: the kernel gives the bits of the plain form."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from darn.nn import CausalDense, _causal, _walk_kernel
from darn.nn._walk_kernel import on_grid, to_grid, walked

pytestmark = pytest.mark.gpu


def random_causal(n):
    m = eqx.tree_at(lambda m: m.W, CausalDense(n), jax.random.normal(jax.random.key(n), (n, n)))
    return m, 3 * jax.random.normal(jax.random.key(n + 1), (130, n))


@pytest.mark.parametrize("n", [1, 31, 32, 70])
def test_the_kernel_decides_the_same_bits_as_the_plain_form(n, monkeypatch):
    """In one batch, batch in batch, and with other weights for each batch; interpreted where no GPU compiles it."""
    m, s = random_causal(n)
    batches, models = s.reshape(2, 65, n), jax.tree.map(lambda W: jnp.stack([W, -W]), m)
    forms = (
        lambda: jax.vmap(m.decided)(s),
        lambda: jax.vmap(jax.vmap(m.decided))(batches),
        lambda: jax.vmap(lambda m, s: jax.vmap(m.decided)(s))(models, batches),
        lambda: jax.vmap(lambda m: jax.vmap(m.decided)(s))(models),
    )
    interpret, calls = not _walk_kernel.has_kernel(), []
    monkeypatch.setattr(_causal, "has_kernel", lambda: False)
    plain = [form() for form in forms]
    monkeypatch.setattr(_causal, "has_kernel", lambda: True)
    monkeypatch.setattr(_causal, "walked", lambda W, s: calls.append(s.shape) or walked(W, s, interpret=interpret))
    for form, expected in zip(forms, plain):
        np.testing.assert_array_equal(form(), expected)
    assert {(130, n), (65, n)} <= set(calls)
    assert n == 1 or np.any(plain[2][1] != plain[0][65:])


def test_a_device_that_cannot_compile_the_kernel_has_none(monkeypatch):
    monkeypatch.setattr(_walk_kernel, "walked", lambda W, s: W @ "as on a CPU, which cannot")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    _walk_kernel.has_kernel.cache_clear()
    assert not _walk_kernel.has_kernel()
    _walk_kernel.has_kernel.cache_clear()


def test_a_gpu_has_the_kernel():
    if jax.default_backend() != "gpu":
        pytest.skip("no GPU here")
    assert _walk_kernel.has_kernel()


@pytest.mark.parametrize("n", [7, 300])
def test_sums_on_the_grid_are_exact_and_near(n):
    """As integers, in any order: no partial sum reaches 2^24; and each weight is off by half a multiple at most."""
    m, s = random_causal(n)
    s = s.at[0].set(jnp.inf).at[1].set(-jnp.inf)
    W, scale = on_grid(m.weights())
    inputs = np.asarray(jax.vmap(to_grid, (0, None))(s, scale), np.float64)
    whole = np.asarray(W, np.float64)
    assert np.array_equal(whole, np.rint(whole))
    assert np.array_equal(inputs, np.rint(inputs))
    assert (np.abs(inputs).max(axis=0) + np.abs(whole).sum(axis=1)).max() < 2**24
    assert np.abs(whole / scale[:, None] - m.weights()).max() <= 0.5 / scale.min()
    assert (np.abs(inputs[:2]).min(axis=0) >= np.abs(whole).sum(axis=1)).all()  # infinite inputs stay decisive

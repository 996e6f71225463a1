"""Importance weights on a GPU: products of half precision, and a kernel that keeps no logits."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from darn.batching import row_keys
from darn.inference import weights
from darn.inference.likelihood import importance
from darn.nn import _score_kernel
from darn.zoo import darn

pytestmark = pytest.mark.gpu


@pytest.fixture
def kernel(monkeypatch):
    """The kernel, interpreted where no GPU compiles it; gives the shapes of y and c in its calls."""
    interpret, calls, scored = not _score_kernel.has_kernel(), [], _score_kernel.scored

    def called(y, W, b, c, **more):
        calls.append((y.shape, c.shape))
        return scored(y, W, b, c, interpret=interpret, **more)

    monkeypatch.setattr(_score_kernel, "has_kernel", lambda: True)
    monkeypatch.setattr(_score_kernel, "scored", called)
    return calls


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("few", "each", "n", "n_c"), [(2, 128, 130, 70), (3, 5, 20, 7), (1, 300, 129, 129)])
def test_the_kernel_sums_what_the_logits_say(few, each, n, n_c, causal, kernel):
    rng = np.random.default_rng(n)
    n_c = n if causal else n_c
    W = jnp.asarray(rng.normal(size=(n, n_c)) / n_c**0.5, jnp.float16)
    b = jnp.asarray(3 * rng.normal(size=n), jnp.float32)
    c = jnp.asarray(rng.integers(0, 2, (few, each, n_c)), jnp.float16)
    if causal:
        W, y, axis = jnp.tril(W, -1), c, 0
        score = _score_kernel.causal_log_prob
    else:
        y, axis = jnp.asarray(rng.integers(0, 2, (few, n)), jnp.float32), None
        score = _score_kernel.product_log_prob
    found = jax.jit(jax.vmap(jax.vmap(score, (axis, None, None, 0)), (0, None, None, 0)))(y, W, b, c)
    bits = np.asarray(y, np.float64) if causal else np.asarray(y, np.float64)[:, None]
    a = np.asarray(b, np.float64) + np.asarray(c, np.float64) @ np.asarray(W, np.float64).T
    np.testing.assert_allclose(found, (bits * a - np.logaddexp(0, a)).sum(axis=-1), atol=2e-3, rtol=1e-5)
    assert kernel[-1] == ((few * each if causal else few, n), (few * each, n_c))


def test_weights_of_half_precision_are_of_the_same_codes_and_near(kernel, monkeypatch):
    """As on a GPU: with the kernel, and without it."""
    key = jax.random.key(0)
    model = jax.tree.map(lambda w: w + 0.05 * jax.random.normal(key, w.shape), darn(130, 70, 60, key=key))
    x = jax.random.bernoulli(jax.random.key(1), 0.5, (2, 130)).astype(jnp.float32)
    keys, numbers = row_keys(jax.random.key(2), np.arange(2, dtype=np.uint32)), jnp.arange(128)
    samples = {"n_samples": 300, "repeats": 2}
    with jax.default_matmul_precision("highest"):
        log_p, log_q = weights.draw(model, x, None, keys, numbers)
        expected = importance(model, x, **samples).log_p
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert weights.in_half()
    for has_kernel in (True, False):
        monkeypatch.setattr(_score_kernel, "has_kernel", lambda has=has_kernel: has)
        half_p, half_q = weights.draw(model, x, None, keys, numbers)
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-4), half_q, log_q)  # the same codes
        for half, full in zip(half_p, log_p):
            off = np.asarray(half - full)
            assert np.abs(off.mean()) < 1e-3
            assert 0 < np.abs(off).max() < 0.02
        np.testing.assert_allclose(importance(model, x, **samples).log_p, expected, atol=3e-3)
    assert {((2, 130), (256, 60)), ((256, 70), (256, 70))} <= set(kernel)  # the visible layer, and the code


def test_the_kernel_is_for_a_single_gpu():
    gpu = jax.default_backend() == "gpu"
    assert _score_kernel.has_kernel() == (gpu and jax.device_count() == 1)

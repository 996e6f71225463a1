"""Laws of one-hot groups: a distribution over the valid rows, the same one in scoring, walking and sampling."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import GROUPS, N_C, ONE_HOT, P_VALUE, chi_square, number, randomised, states
from jax import lax

from darn.config import Architecture
from darn.inference import likelihood, sampling
from darn.layers import EoNADE, OneHot
from darn.model_file import load_model, save_model
from darn.zoo import build

N = sum(GROUPS)
ROWS = states(N)


def valid(rows):
    parts = np.split(np.asarray(rows), np.cumsum(GROUPS)[:-1], axis=1)
    return np.all([p.sum(axis=1) == 1 for p in parts if p.shape[1] > 1], axis=0)


@eqx.filter_jit
def observe(layer, c, rows, keys):
    def walk(y):
        step = lambda state, j: (layer.write(state, j, y[j]), layer.read(state, j))  # noqa: E731
        return lax.scan(step, layer.start(c), jnp.arange(layer.n))[1]

    weights, static = eqx.partition(layer, eqx.is_inexact_array)
    return {
        "log_prob": jax.vmap(lambda y: layer.log_prob(y, c))(rows),
        "logits": jax.vmap(lambda y: layer.logits(y, c))(rows),
        "walk": jax.vmap(walk)(rows),
        "sample": jax.vmap(lambda key: layer.sample(c, key=key))(keys),
        "most_probable": layer.most_probable(c)[0],
        "slope": jax.vmap(jax.grad(lambda w, y: eqx.combine(w, static).log_prob(y, c)), (None, 0))(weights, rows[::17]),
    }


@pytest.fixture(scope="module", params=[(name, n_c) for name in ONE_HOT for n_c in (0, N_C)], ids=str)
def seen(request):
    name, n_c = request.param
    seed = sorted(ONE_HOT).index(name)
    layer = randomised(ONE_HOT[name](n_c, jax.random.key(0)), seed)
    c = jnp.asarray(np.random.default_rng(seed).normal(size=n_c), jnp.float32) if n_c else None
    keys = jax.random.split(jax.random.key(1), 10_000)
    return jax.tree.map(np.asarray, observe(layer, c, jnp.asarray(ROWS), keys))


def test_sums_to_one_over_the_valid_rows(seen):
    p = np.exp(seen["log_prob"].astype(np.float64))
    assert np.all(p[~valid(ROWS)] == 0)
    assert np.all(p[valid(ROWS)] > 0)
    assert abs(p.sum() - 1) < 1e-5


def test_samples_are_valid_and_of_that_distribution(seen):
    assert valid(seen["sample"]).all()
    ok = valid(ROWS)
    cell = np.cumsum(ok) - 1
    assert chi_square(cell[number(seen["sample"])], np.exp(seen["log_prob"][ok].astype(np.float64))) > P_VALUE


def test_walking_reads_the_same_logits(seen):
    ok = valid(ROWS)
    np.testing.assert_allclose(seen["walk"][ok], seen["logits"][ok], rtol=1e-4, atol=1e-4)


def test_the_most_probable_is_valid_and_slopes_are_finite(seen):
    assert valid(seen["most_probable"][None]).all()
    assert all(np.isfinite(v).all() for v in jax.tree.leaves(seen["slope"]))


@pytest.mark.parametrize("visible", ["factorial", "linear"])
def test_a_stack_starts_at_the_means_and_survives_a_file(visible, tmp_path):
    rows = ROWS[valid(ROWS)]
    weight = np.random.default_rng(0).dirichlet(np.ones(len(rows)))
    arch = Architecture(n_h=(3,), n_d=(4,), visible=visible)
    model = build(arch, N, mean=weight @ rows, groups=GROUPS, key=jax.random.key(0))
    silent = lambda u: jax.tree.map(jnp.zeros_like, u)  # noqa: E731
    quiet = eqx.tree_at(lambda m: m.decoder[0].layer.layer.U, model, replace_fn=silent)
    p = np.exp(likelihood.exact(quiet, rows).log_p)
    np.testing.assert_allclose(p.sum(), 1, rtol=1e-4)
    np.testing.assert_allclose(p @ rows, weight @ rows, atol=2e-3)
    save_model(tmp_path / "m.safetensors", model)
    again, _ = load_model(tmp_path / "m.safetensors")
    assert valid(sampling.sample(again, 50).x).all()
    np.testing.assert_array_equal(likelihood.exact(again, rows).log_p, likelihood.exact(model, rows).log_p)


def test_refusals():
    layer = ONE_HOT["one-hot linear"](0, jax.random.key(0)).layer
    for bad in ((3, 4), (8, 0)):
        with pytest.raises(ValueError, match="sum to the units"):
            OneHot(layer, bad)
    with pytest.raises(ValueError, match="factorial or autoregressive"):
        OneHot(EoNADE(8, n_hidden=(3,), key=jax.random.key(0)), GROUPS)

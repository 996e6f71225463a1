"""Laws of one-hot groups: a distribution over the valid rows, the same one in scoring, walking and sampling."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import GROUPS, ONE_HOT, make_layer, states
from test_layers import look

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


@pytest.mark.parametrize("name", ONE_HOT)
def test_only_valid_rows_are_possible(name):
    """That samples follow log p, and the rest, are laws of all layers: test_layers.py."""
    _, _, seen = look(name)
    p = np.exp(seen["log_prob"].astype(np.float64))
    assert np.all(p[~valid(ROWS)] == 0)
    assert np.all(p[valid(ROWS)] > 0)
    assert valid(seen["sample"]).all()
    assert valid(seen["most_probable"][0][None]).all()


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
    layer = make_layer("one-hot linear")[0].layer
    for bad in ((3, 4), (8, 0)):
        with pytest.raises(ValueError, match="sum to the units"):
            OneHot(layer, bad)
    with pytest.raises(ValueError, match="one order"):
        OneHot(EoNADE(8, n_hidden=(3,), key=jax.random.key(0)), GROUPS)

"""Laws of groups: a distribution over the rows that spell values, the same one in scoring, walking and sampling."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import GROUPED, GROUPS, WORDS, make_layer, states
from reference import spelled
from test_layers import look

from darn.config import Architecture
from darn.inference import likelihood, sampling
from darn.layers import EoNADE, Groups
from darn.model_file import load_model, save_model
from darn.zoo import build

N = sum(GROUPS)
ROWS = states(N)


def valid(rows, groups=GROUPS):
    """Which rows spell a value in every group."""
    every = [spelled(g) for g in groups]
    ends = np.cumsum([len(values[0]) for values in every])
    parts = np.split(np.asarray(rows), ends[:-1], axis=1)
    return np.all([[tuple(row) in values for row in p.tolist()] for values, p in zip(every, parts)], axis=0)


@pytest.mark.parametrize("name", GROUPED)
def test_only_valid_rows_are_possible(name):
    """That samples follow log p, and the rest, are laws of all layers: test_layers.py."""
    layer, _, seen = look(name)
    p = np.exp(seen["log_prob"].astype(np.float64))
    possible = valid(states(layer.n), layer.groups)
    assert np.all(p[~possible] == 0)
    assert np.all(p[possible] > 0)
    assert valid(seen["sample"], layer.groups).all()
    assert valid(seen["most_probable"][0][None], layer.groups).all()


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


def test_words_start_at_the_means_of_independent_bits():
    """Of 0..5 in three bits, the second is free unless the first is on; without a value, all bits are 0."""
    rng = np.random.default_rng(1)
    rows = ROWS[valid(ROWS, WORDS)]
    weight = rng.dirichlet(np.ones(len(rows)))
    mean = weight @ rows
    model = build(Architecture(n_h=(), visible="factorial"), N, mean=mean, groups=WORDS, key=jax.random.key(0))
    p = np.exp(likelihood.exact(model, rows).log_p)
    np.testing.assert_allclose(p.sum(), 1, rtol=1e-4)
    np.testing.assert_allclose((p @ rows)[[0, 1, 2, 3, 4, 5]], mean[[0, 1, 2, 3, 4, 5]], atol=2e-3)
    np.testing.assert_allclose(p @ rows, mean, atol=0.05)


def test_refusals():
    layer = make_layer("one-hot linear | c")[0].layer
    for bad, said in (
        ((3, 4), "sum to the units"),
        ((5, (4, False), 1), "sum to the units"),
        ((8, 0), "positive"),
        ((7, (-1, True)), "positive"),
        ((8, (0, False)), "positive"),
    ):
        with pytest.raises(ValueError, match=said):
            Groups(layer, bad)
    with pytest.raises(ValueError, match="one order"):
        Groups(EoNADE(8, n_hidden=(3,), key=jax.random.key(0)), GROUPS)

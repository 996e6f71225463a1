"""The RBM: log Z by annealing against the enumerated one, contrastive divergence learns, files come back."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import chi_square, number, randomised, same, states

from darn.cli import main
from darn.errors import DarnError
from darn.paper import rbm

MACHINE = randomised(rbm.RBM.fresh(np.full(6, 0.4), 5, key=jax.random.key(0)), 1, scale=1.0)


def test_the_enumerated_z_makes_probabilities():
    x = jnp.asarray(states(6))
    log_p = -np.asarray(MACHINE.free_energy(x), np.float64) - rbm.exact_log_z(MACHINE)
    assert np.exp(log_p).sum() == pytest.approx(1, abs=1e-5)
    # and from the definition, over x and h together
    h = states(5)
    energy = (
        states(6) @ np.asarray(MACHINE.b)[:, None]
        + (h @ np.asarray(MACHINE.c))[None]
        + states(6) @ (h @ np.asarray(MACHINE.W)).T
    )
    assert np.log(np.exp(energy).sum()) == pytest.approx(rbm.exact_log_z(MACHINE), abs=1e-4)


def test_annealing_finds_log_z_within_its_interval():
    exact = rbm.exact_log_z(MACHINE)
    inside = 0
    for seed in range(10):
        z = rbm.log_z(MACHINE, np.full(6, 0.4), chains=200, temperatures=40, seed=seed)
        assert z.low < z.value < z.high
        assert z.value == pytest.approx(exact, abs=0.3)
        inside += z.low <= exact <= z.high
    assert inside >= 8
    assert rbm.log_z(MACHINE, np.full(6, 0.4), chains=200, temperatures=400).ess > z.ess


def test_gibbs_leaves_the_distribution_alone():
    log_p = -np.asarray(MACHINE.free_energy(jnp.asarray(states(6))), np.float64) - rbm.exact_log_z(MACHINE)
    p = np.exp(log_p) / np.exp(log_p).sum()
    start = states(6)[np.random.default_rng(0).choice(64, 20_000, p=p)]
    after = MACHINE.gibbs(jnp.asarray(start), jax.random.key(1))
    assert chi_square(number(after), p) > 1e-4


def test_contrastive_divergence_learns():
    """Two kinds of rows: the trained machine comes near their entropy, independent units cannot."""
    rng = np.random.default_rng(0)
    x = ((rng.random((2000, 6)) < 0.1) ^ (rng.random((2000, 1)) < 0.5)).astype(np.uint8)
    settings = rbm.Settings(n_h=4, steps=5, lr=0.2, epochs=30, looks=3, batch=50)
    found, how = rbm.fit(x[:1500], x[1500:], settings)
    nll = rbm.mean_free_energy(found, x[1500:]) + rbm.exact_log_z(found)
    entropy = np.log(2) - 6 * (0.1 * np.log(0.1) + 0.9 * np.log(0.9))
    assert nll == pytest.approx(entropy, abs=0.2)
    assert nll < 6 * np.log(2) - 1
    assert how["valid_nll"] == pytest.approx(nll, abs=0.1)
    assert how["epoch"] in [h["epoch"] for h in how["history"]]


def test_files(tmp_path):
    path = tmp_path / "m.safetensors"
    rbm.save(path, MACHINE, {"a": 1})
    found, info = rbm.load(path)
    same(found, MACHINE)
    assert info == {"a": 1}
    whole = path.read_bytes()
    path.write_bytes(whole[:40])
    with pytest.raises(DarnError, match="not a readable RBM"):
        rbm.load(path)


FORGED = {
    "a shape": ({"c": jnp.zeros(4)}, {}),
    "a matrix as a vector": ({"W": jnp.zeros(5)}, {}),
    "not finite": ({"b": jnp.full(6, jnp.nan)}, {}),
    "info": ({}, []),
    "no means": ({}, {"data": {"name": "digits"}}),
    "other means": ({}, {"data": {"name": "digits"}, "mean": [0.5]}),
    "means of texts": ({}, {"data": {"name": "digits"}, "mean": ["x"] * 6}),
    "other data": ({}, {"data": {"name": "digits"}, "mean": [0.5] * 6}),
    "a name that is none": ({}, {"data": {"name": [1]}, "mean": [0.5] * 6}),
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_files(case, tmp_path, capsys):
    arrays, info = FORGED[case]
    path = tmp_path / "m.safetensors"
    rbm.save(path, dataclasses.replace(MACHINE, **arrays), info)
    assert main(["eval", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1

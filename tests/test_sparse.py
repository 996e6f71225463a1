"""Laws of the sparse sampler: the dense one's distribution, its very bits, and additions that are counted."""

import json
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import MODELS, P_VALUE, chi_square, joint, number, randomised

from darn import zoo
from darn.cli import main
from darn.config import Architecture
from darn.errors import DarnError
from darn.inference import sampling, sparse
from darn.model_file import load_model

LINEAR = {"n_d": (), "n_nade": (3,)}
# name: (architecture, n_x, n_context)
CHAINS = {
    "fdarn": (Architecture(n_h=(4,), encoder_d=(3,), decoder_d=(), visible="factorial"), 5, 0),
    "fvsbn": (Architecture(n_h=(), visible="linear"), 6, 0),
    "autoregressive visible": (Architecture(n_h=(3,), visible="linear", **LINEAR), 4, 0),
    "factorial all through": (Architecture(n_h=(3, 2), visible="factorial", prior="factorial", **LINEAR), 4, 0),
    "two layers": (Architecture(n_h=(3, 2), visible="linear", **LINEAR), 4, 0),
    "three, skip": (Architecture(n_h=(2, 3, 2), visible="factorial", skip=True, **LINEAR), 3, 0),
    "skip | c": (Architecture(n_h=(3, 2), visible="linear", skip=True, **LINEAR), 3, 2),
    "fdarn | c": (Architecture(n_h=(4,), visible="factorial", **LINEAR), 4, 3),
}
chains = pytest.mark.parametrize("name", CHAINS)


@lru_cache
def make(name, grid=None):
    arch, n_x, n_context = CHAINS[name]
    seed = sorted(CHAINS).index(name)
    model = randomised(zoo.build(arch, n_x, n_context=n_context, key=jax.random.key(0)), seed, grid=grid)
    c = np.array([1.0, 0.0, -0.5], np.float32)[:n_context]
    return model, c if n_context else None


def draw(model, c, n, **options):
    return sparse.sample(model, n, context=None if c is None else np.tile(c, (n, 1)), **options)


@chains
def test_samples_follow_log_prob(name):
    """x and h together, against the probabilities by enumeration."""
    model, c = make(name)
    found = draw(model, c, 20_000, seed=1)
    p = np.exp(joint(model, c)[0])
    codes = np.concatenate(found.h, axis=1) if found.h else np.zeros((20_000, 0), np.uint8)
    assert chi_square(number(found.x) * p.shape[1] + number(codes), p) > P_VALUE


@chains
def test_samples_are_those_of_the_dense_sampler(name):
    """Weights on a grid, so that no sum rounds: the same uniform numbers give the same bits."""
    model, c = make(name, grid=1 / 64)
    n = 2000
    dense = sampling.sample(model, n, seed=7, context=None if c is None else np.tile(c, (n, 1)))
    found = draw(model, c, n, seed=7, chunk=700)
    np.testing.assert_array_equal(found.x, dense.x)
    for one, other in zip(found.h, dense.h, strict=True):
        np.testing.assert_array_equal(one, other)


def additions(model, x, h, c):
    """By the sizes, in plain loops: every active unit onto all later units that hear it."""
    layers = [*h[::-1], x]
    kinds = [part.layer for part in model.decoder[::-1]]
    sizes = [len(y) for y in layers]
    total = 0 if c is None else np.count_nonzero(c) * sum(sizes)
    for i, (y, kind) in enumerate(zip(layers, kinds)):
        below = sum(sizes[i + 1 :] if model.skip else sizes[i + 1 : i + 2])
        own = hasattr(kind, "W")
        total += sum(below + (len(y) - 1 - j) * own for j in np.flatnonzero(y))
    return total


@chains
def test_additions_are_those_of_active_units(name):
    model, c = make(name)
    found = draw(model, c, 50, seed=2)
    for i in range(50):
        assert found.additions[i] == additions(model, found.x[i], [y[i] for y in found.h], c)


def test_seeds_and_chunks():
    model, _ = make("fdarn")
    one = sparse.sample(model, 500, seed=3)
    for chunk in (1, 7, 500):
        again = sparse.sample(model, 500, seed=3, chunk=chunk)
        np.testing.assert_array_equal(again.x, one.x)
        np.testing.assert_array_equal(again.additions, one.additions)
    assert np.any(sparse.sample(model, 500, seed=4).x != one.x)
    assert sparse.sample(model, 0).x.shape == (0, 5)


def test_a_bias_on_the_context_is_added_once():
    model, _ = make("fdarn", grid=1 / 64)
    layer = model.decoder[0].layer
    with_bias = jax.tree.map(lambda w: w, model)
    object.__setattr__(with_bias.decoder[0].layer.U, "b", jnp.asarray(np.arange(5) / 4 - 0.5, jnp.float32))
    assert layer.U.b is None
    np.testing.assert_array_equal(sparse.sample(with_bias, 300).x, sampling.sample(with_bias, 300).x)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("1 factorial", "without deterministic"),
        ("3 skip", "deterministic"),
        ("nade", "NADE"),
        ("mixture", "Mixture"),
    ],
)
def test_other_models_are_refused(name, said):
    arch, n_x, n_context = MODELS[name]
    model = zoo.build(arch, n_x, n_context=n_context, key=jax.random.key(0))
    with pytest.raises(DarnError, match=said) as e:
        sparse.sample(model, 3)
    assert "\n" not in str(e.value)


def test_the_context_must_fit():
    for name, context in (("fdarn", np.ones((5, 2))), ("fdarn | c", None), ("fdarn | c", np.ones((5, 2)))):
        with pytest.raises(DarnError, match="context"):
            sparse.sample(make(name)[0], 5, context=context)


def test_from_the_command_line(tmp_path, capsys):
    def darn(*words):
        status = main([*map(str, words)])
        return status, capsys.readouterr()

    run, rows = tmp_path / "run", tmp_path / "a.npy"
    assert darn("train", "digits", "--tiny", "--decoder_d", "", "--out", run, "--epochs", 1, "--quiet")[0] == 0
    status, said = darn("sample", run, "-n", 30, "--sparse", "--json", "--out", rows, "--hidden", tmp_path / "h.npz")
    facts = json.loads(said.out)
    h = np.load(tmp_path / "h.npz")["h1"]
    assert status == 0
    assert facts["active"] == pytest.approx(h.sum(axis=1).mean())
    assert facts["additions"] > 0
    assert facts["samples_per_s"] > 0
    np.testing.assert_array_equal(np.load(rows), sparse.sample(load_model(run)[0], 30).x)
    assert "additions" in darn("sample", run, "-n", 3, "--sparse", "--out", rows)[1].out
    status, said = darn("sample", run, "--sparse", "--out", rows, "--log-joint", tmp_path / "l.npy")
    assert (status, said.err.count("\n")) == (2, 1)
    assert "--log-joint" in said.err
    assert darn("train", "digits", "--tiny", "--out", tmp_path / "deep", "--epochs", 1, "--quiet")[0] == 0
    status, said = darn("sample", tmp_path / "deep", "--sparse", "--csv")
    assert (status, said.out) == (2, "")  # nothing is written before the model is refused

"""Laws of training: the optimiser's lines, what a tiny stack can learn, and runs that are broken off."""

import io
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import reference
from helpers import fresh, randomised, same

from darn import zoo
from darn.config import Architecture, Training
from darn.data import Moves, Rows
from darn.errors import DarnError
from darn.inference.likelihood import exact
from darn.model_file import load_model
from darn.paper.recipes import RECIPES
from darn.runs.dataset import load_data, training_rows
from darn.training import (
    DeviceRows,
    Hyper,
    Loop,
    Program,
    Terms,
    checkpoint_host,
    fit,
    load_checkpoint,
    make_optimizer,
    make_schedule,
    save_checkpoint,
)
from darn.training._metrics import excess_activity
from darn.training._optim import optimizer_names
from darn.training._step import penalty

# Each bit is linearly separable given those before it, so that even an FVSBN can know the four by heart.
FOUR = np.array([[0, 0, 0, 1, 0, 1], [0, 1, 0, 1, 1, 0], [1, 1, 1, 0, 1, 0], [1, 0, 0, 0, 1, 1]], np.uint8)
PATTERNS = Rows.from_array(np.tile(FOUR, (5, 1)))
BASE = Training(lr=0.01, batch=10, epochs=3, checkpoint_every=1e9)


@pytest.fixture
def optax_promotes():
    """optax's own optimisers raise floats to integer powers: allowed to them, not to us."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def small(n_h=(2,), seed=0, **fields):
    arch = Architecture(n_h=n_h, **({"n_d": (4,), "visible": "factorial"} | fields))
    return fresh(arch, 6, key=jax.random.key(seed))


def go(model, config, **options):
    return fit(model, PATTERNS, PATTERNS, config, **options)


def take(rows, index, uniform=None):
    return rows.batch(index, jax.random.split(jax.random.key(1), len(index)), uniform)


# ---------------------------------------------------------------- optimiser


def test_rmsprop_follows_the_lines_of_graves():
    rng = np.random.default_rng(0)
    w = {"a": rng.normal(size=(3, 2)), "b": rng.normal(size=4)}
    params = jax.tree.map(lambda v: jnp.asarray(v, jnp.float32), w)
    ours, lines = make_optimizer("rmsprop_graves", 0.01), {k: reference.RMSprop(v, 0.01) for k, v in w.items()}
    state, update = ours.init(params), jax.jit(ours.update)
    for _ in range(60):
        g = {k: rng.normal(size=v.shape) * 0.05 + 0.02 for k, v in w.items()}
        updates, state = update(jax.tree.map(lambda v: jnp.asarray(v, jnp.float32), g), state, params)
        params = optax.apply_updates(params, updates)
        for k in w:
            np.testing.assert_allclose(params[k], lines[k].step(g[k]), rtol=1e-4, atol=1e-5)


def test_rmsprop_of_a_constant_gradient_is_finite():
    """n - m^2 tends to zero and rounds below it; epsilon outweighs that for any mean gradient in nats."""
    ours = make_optimizer("rmsprop_graves", 1e-3)
    gradient = jnp.concatenate([jnp.linspace(-3.0, 3.0, 200), jnp.asarray([1e-8])])
    state, update = ours.init(gradient), jax.jit(ours.update)
    for _ in range(600):
        delta, state = update(gradient, state)
    assert np.all(np.isfinite(delta))


def test_schedules():
    for name, values in {
        "constant": (1, 1, 1, 1),
        "half": (1, 1, 1 - 0.99 / 2, 0.01),
        "linear": (1, 1 - 0.99 / 2, 1 - 0.99 * 3 / 4, 0.01),
        "cosine": (1, 0.505, 0.01 + 0.99 * (1 + math.cos(0.75 * math.pi)) / 2, 0.01),
    }.items():
        with jax.numpy_dtype_promotion("standard"):
            schedule = make_schedule(name, 1.0, 100)
            found = [float(schedule(jnp.asarray(i))) for i in (0, 50, 75, 100)]
        np.testing.assert_allclose(found, values, rtol=1e-5, err_msg=name)


def descends(name):
    """Whether three steps of the named optimiser lead downhill."""
    optimizer = make_optimizer(name, make_schedule("constant", jnp.asarray(0.01), 10))
    w = jnp.asarray([1.0, -2.0])
    state, update = optimizer.init(w), jax.jit(optimizer.update)
    for _ in range(3):
        updates, state = update(2 * w, state, w)
        w = optax.apply_updates(w, updates)
    return float(jnp.sum(w * w)) < 5


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "rmsprop", "adagrad", "lion", "radam", "lamb"])
@pytest.mark.usefixtures("optax_promotes")
def test_optax_by_name(name):
    assert name in optimizer_names()
    assert descends(name)


@pytest.mark.filterwarnings("ignore:Specifying a key")
@pytest.mark.usefixtures("optax_promotes")
def test_every_optimizer_on_offer_works():
    broken = {}
    for name in optimizer_names():
        try:
            if not descends(name):
                broken[name] = "leads uphill"
        except Exception as e:
            broken[name] = f"{type(e).__name__}: {e}"
    assert not broken, broken


@pytest.mark.parametrize(
    ("name", "hint"), [("adm", "'adam'"), ("rmsprop_grave", "'rmsprop_graves'"), ("zzzz", "optax")]
)
def test_unknown_optimizer(name, hint):
    with pytest.raises(DarnError, match=hint) as e:
        make_optimizer(name, 0.01)
    assert "\n" not in str(e.value)


# ---------------------------------------------------------------- learning


@pytest.mark.parametrize(
    ("model", "config"),
    [
        (zoo.fvsbn(6, key=jax.random.key(0)), replace(BASE, lr=0.03, epochs=200)),
        (small((3,), n_d=(8,)), replace(BASE, lr=0.003, epochs=2000)),
        (small((3, 3), n_d=(8,), skip=True), replace(BASE, lr=0.003, epochs=2000)),
    ],
    ids=["fvsbn", "one layer", "two layers"],
)
def test_four_patterns_are_memorised(model, config):
    found = go(model, replace(config, validate_every=config.epochs // 4))
    truth = exact(found.model, FOUR)
    assert math.log(4) - 1e-4 < truth.nll < math.log(4) + 0.1
    assert truth.nll - 1e-4 < truth.bound < math.log(4) + 0.2
    assert found.bound == pytest.approx(truth.bound, abs=0.1)


def test_sparsity_price_holds_activity_at_its_target():
    config = replace(BASE, lr=0.003, epochs=4000, validate_every=1000, sparsity=0.2)
    rows = Rows.from_array((np.random.default_rng(0).random((20, 6)) < 0.5).astype(np.uint8))
    found = fit(small((10,), n_d=()), rows, rows, config)
    assert found.history[-1]["train"]["active"][0] == pytest.approx(2, abs=0.3)
    assert found.history[-1]["price"][0] > 0


def test_a_model_as_sparse_as_asked_for_comes_before_a_better_bound():
    config = replace(BASE, lr=0.01, epochs=40, sparsity=0.3)
    found = go(small((4,)), config)
    rank = [(max(0.0, row["valid"]["active"][0] / 1.2 - 1.05), row["valid"]["bound"]) for row in found.history]
    assert found.epoch == 1 + rank.index(min(rank))
    assert found.bound == min(rank)[1] > min(bound for _, bound in rank)
    assert excess_activity([2.0], 0.0, (4,)) == 0


def weights_of(fitted):
    return jax.tree.leaves(eqx.filter(fitted.model, eqx.is_inexact_array))


def test_weight_decay_shrinks_matrices_and_l1_autoregression():
    model = randomised(zoo.fvsbn(6, key=jax.random.key(0)), 0)
    config = replace(BASE, epochs=60, validate_every=60)
    plain, decayed, sparse = (
        go(model, replace(config, **extra)).model.decoder[0].layer for extra in ({}, {"weight_decay": 0.3}, {"l1": 0.3})
    )
    size = lambda layer: float(jnp.sum(jnp.abs(layer.W.weights())))  # noqa: E731
    assert size(decayed) < 0.8 * size(plain)
    assert size(sparse) < 0.5 * size(plain)
    assert np.max(np.abs(decayed.b)) > 0.05  # biases are free
    # the unused triangle is no weight of the model: L1 leaves it where it was
    np.testing.assert_array_equal(np.triu(sparse.W.W), np.triu(model.decoder[0].layer.W.W))


def test_weighted_encodings_are_judged_by_their_own_bound():
    found = go(small((3,)), replace(BASE, lr=0.01, epochs=20, n_samples=4, weighted=True))
    for row in found.history:
        for part in (row["train"], row["valid"]):
            assert part["weighted"] < part["bound"] == pytest.approx(part["x_given_h"] + sum(part["h"]))
    assert found.bound == min(row["valid"]["weighted"] for row in found.history) < found.history[0]["valid"]["weighted"]


@pytest.mark.parametrize("part", ["all", "encoder", "decoder"])
def test_weight_decay_is_on_the_part_it_is_asked_for(part):
    model = small((4,))
    config = replace(BASE, weight_decay=0.3)
    gradient = eqx.filter_grad(lambda m: penalty(m, Hyper.of(config), Terms.of([config]), part))(model)
    for name in ("encoder", "decoder"):
        pairs = list(zip(jax.tree.leaves(getattr(gradient, name)), jax.tree.leaves(getattr(model, name))))
        assert any(w.ndim > 1 for _, w in pairs)
        for g, w in pairs:
            decays = w.ndim > 1 and part in ("all", name)
            np.testing.assert_allclose(g, 0.3 * w if decays else 0 * w, rtol=1e-6)


def test_weight_decay_on_nothing_known():
    with pytest.raises(ValueError, match="'n_h'"):
        go(small((4,)), replace(BASE, weight_decay=0.3, decay_on="n_h"))


def test_averaged_weights_are_the_running_mean():
    model = zoo.fvsbn(6, key=jax.random.key(0))
    config = replace(BASE, average=0.5, epochs=1)
    program, hyper = Program(model, config, len(PATTERNS)), Hyper.of(config)
    rows = DeviceRows.put(PATTERNS)
    state = program.start(model, hyper)
    expected = [np.asarray(w, np.float64) for w in jax.tree.leaves(state.params)]
    step = jax.jit(program.step)
    for i in range(30):
        state, _ = step(state, hyper, take(rows, jnp.arange(10)))
        decay = min(0.5, (1 + i) / (10 + i))
        new = jax.tree.leaves(state.params)
        expected = [decay * m + (1 - decay) * np.asarray(w, np.float64) for m, w in zip(expected, new)]
    for m, w in zip(expected, jax.tree.leaves(state.average)):
        np.testing.assert_allclose(w, m, rtol=1e-4, atol=1e-6)
    assert program.kept(state) is state.average


def test_step_is_a_step_of_gradient_descent():
    """sgd on a model without bits: w - lr times the mean gradient over the batch, by hand."""
    model = randomised(zoo.fvsbn(6, key=jax.random.key(0)), 1)
    config = replace(BASE, optimizer="sgd", lr=0.1)
    program, hyper = Program(model, config, len(PATTERNS)), Hyper.of(config)
    rows = DeviceRows.put(PATTERNS)
    index = jnp.asarray([0, 1, 2, 6])
    state, metrics = jax.jit(program.step)(program.start(model, hyper), hyper, take(rows, index))
    x = jnp.asarray(PATTERNS.unpack()[np.asarray(index)], jnp.float32)
    params, static = eqx.partition(model, eqx.is_inexact_array)
    loss = lambda p: -jnp.mean(jax.vmap(lambda x: eqx.combine(p, static).log_p(x))(x))  # noqa: E731
    value, g = jax.jit(jax.value_and_grad(loss))(params)
    for new, w, d in zip(*map(jax.tree.leaves, (state.params, params, g))):
        np.testing.assert_allclose(new, w - 0.1 * d, rtol=1e-5, atol=1e-6)
    assert float(metrics["bound"]) == pytest.approx(float(value), abs=1e-5)
    assert state.step == 1


def test_epochs_in_one_call_are_epochs_one_by_one():
    model = small()
    program, hyper = Program(model, BASE, len(PATTERNS)), Hyper.of(BASE)
    rows = DeviceRows.put(PATTERNS)
    fresh = lambda: program.start(model, hyper)  # noqa: E731

    def go_on(state, first, count):
        return program.epochs(state, hyper, rows, jnp.asarray(first), jnp.asarray(count))[0]

    at_once, one_by_one = go_on(fresh(), 0, 2), go_on(go_on(fresh(), 0, 1), 1, 1)
    same(at_once, one_by_one)
    assert at_once.step == 4
    another = go_on(go_on(fresh(), 0, 1), 0, 1)  # every epoch has an order of its own
    assert any(np.any(v != w) for v, w in zip(*map(jax.tree.leaves, (another.params, at_once.params))))


def test_rows_reach_the_device_whole():
    rng = np.random.default_rng(0)
    X = (rng.random((7, 13)) < 0.4).astype(np.uint8)
    context = rng.normal(size=(7, 2)).astype(np.float32)
    batch = take(DeviceRows.put(Rows.from_array(X, context=context)), jnp.asarray([3, 0, 6]))
    np.testing.assert_array_equal(batch.x, X[[3, 0, 6]])
    np.testing.assert_array_equal(batch.context, context[[3, 0, 6]])
    grey = Rows(rng.integers(0, 256, (7, 13)).astype(np.uint8), 13, grey=True)
    np.testing.assert_allclose(take(DeviceRows.put(grey), jnp.arange(7)).x, grey.unpack(), rtol=1e-6)


def test_dynamic_binarisation_draws_afresh_with_the_right_mean():
    values = np.array([[0, 64, 128, 255]], np.uint8)
    rows = DeviceRows.put(Rows(np.repeat(values, 4000, axis=0), 4, grey=True))
    index = jnp.arange(4000)
    one, two = (np.asarray(take(rows, index, jax.random.uniform(jax.random.key(k), (4000, 4))).x) for k in (0, 1))
    assert set(np.unique(one)) == {0, 1}
    assert np.any(one != two)
    p = values[0] / 255
    assert np.all(np.abs(one.mean(axis=0) - p) <= 4 * np.sqrt(p * (1 - p) / 4000))


# ---------------------------------------------------------------- moved images


def shown(values, moves, n=200, grey=False):
    """The same image as so many steps see it, by the key alone."""
    rows = Rows(np.repeat(np.asarray(values, np.uint8)[None], n, axis=0), 12, grey=grey, moves=moves)
    return np.asarray(take(DeviceRows.put(rows), jnp.arange(n)).x).reshape(n, 3, 4)


def test_a_share_of_the_images_moves_by_whole_pixels():
    image = np.array([[0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0]], np.uint8)
    found = shown(np.packbits(image), Moves((3, 4), 0.5, 1.0, 0.0, 0.0))
    edge = np.pad(image, 1)
    shifts = {edge[i : i + 3, j : j + 4].tobytes() for i in range(3) for j in range(3)}
    seen = [one.astype(np.uint8).tobytes() for one in found]
    assert set(seen) == shifts  # in all directions, with nothing but 0 coming in
    still = np.mean([one == image.tobytes() for one in seen])
    assert abs(still - (0.5 + 0.5 / 4)) < 0.15
    assert {*shown(np.packbits(image), Moves((3, 4), 0.0, 1.0, 90.0, 0.5), 20).sum(axis=(1, 2))} == {3.0}


def test_grey_levels_move_before_they_become_bits():
    image = np.arange(12, dtype=np.uint8) * 20
    still = shown(image, Moves((3, 4), 1.0, 0.0, 0.0, 0.0, 128 / 255), 3, grey=True)
    np.testing.assert_array_equal(still.reshape(3, 12), np.repeat((image >= 128)[None], 3, axis=0))
    levels = shown(image, Moves((3, 4), 1.0, 0.4, 10.0, 0.1), 50, grey=True)
    assert len(np.unique(np.round(levels[:, 1, 1], 4))) == 50  # no two alike
    assert np.all(np.abs(levels[:, 1, 1] - image[5] / 255) < 0.4 * 100 / 255 + 0.1)
    drawn = shown(image, Moves((3, 4), 1.0, 0.4, 10.0, 0.1, 0.4), 50, grey=True)
    assert set(np.unique(drawn)) == {0, 1}


def test_moved_digits_train_from_grey_levels_and_are_scored_as_they_are(tmp_path):
    recipe = RECIPES["digits-ours"].tiny().replace(moved=1.0)
    splits = load_data(recipe)
    rows = training_rows(splits, recipe)
    assert (rows.grey, splits.train.grey, len(rows)) == (True, False, len(splits.train))
    plain = replace(rows.moves, share=0.0)
    bits = take(DeviceRows.put(replace(rows, moves=plain)), jnp.arange(50)).x
    np.testing.assert_array_equal(bits, splits.train.unpack()[:50])
    with pytest.raises(DarnError, match="moved needs images"):
        training_rows(replace(splits, shape=None), recipe)


def test_dynamic_binarisation_trains():
    """Biases come to the intensities themselves, which no single draw of so few rows would tell, by way of bits."""
    values = np.array([[40, 80, 120, 160, 200, 240]], np.uint8)
    grey = Rows(np.repeat(values, 10, axis=0), 6, grey=True)
    model = small((), n_d=())
    config = replace(BASE, lr=3e-3, epochs=800, average=0.997, validate_every=20)
    bits, intensities = (fit(model, grey, grey, config, dynamic=dynamic) for dynamic in (True, False))
    np.testing.assert_allclose(jax.nn.sigmoid(bits.model.decoder[0].layer.b), values[0] / 255, atol=0.04)
    spread = lambda found: np.std([row["train"]["bound"] for row in found.history[-20:]])  # noqa: E731
    assert spread(bits) > 0.05 > 100 * spread(intensities)


@pytest.mark.parametrize(
    "fields",
    [
        {"estimator": "disarm"},
        {"estimator": "reinforce", "n_samples": 2},
        {"estimator": "straight_through", "log_q": "entropy", "n_samples": 2, "average": 0.9},
    ],
)
def test_options_train(fields):
    """Every estimator teaches both halves of the stack, each in a way of its own."""
    model, config = small((2, 2)), replace(BASE, epochs=40, validate_every=40)
    found, usual = go(model, replace(config, **fields)), go(model, config)
    untrained = go(model, replace(config, epochs=1, lr=1e-30)).bound
    assert found.bound < untrained - 0.3
    for half in ("encoder", "decoder"):
        new, old, other = (jax.tree.leaves(getattr(m, half)) for m in (found.model, model, usual.model))
        assert all(np.max(np.abs(a - b)) > 0.01 for a, b in zip(new, old))
        assert all(np.max(np.abs(a - b)) > 1e-4 for a, b in zip(new, other))


@pytest.mark.parametrize("clip", [0.0, 1e-3, 1e3])
def test_clipping_bounds_the_norm_of_a_step(clip, optax_promotes):
    model = small()
    config = replace(BASE, optimizer="sgd", lr=1.0, batch=len(PATTERNS), epochs=1, clip=clip)
    found = go(model, config)
    moved = [np.asarray(a) - np.asarray(b) for a, b in zip(jax.tree.leaves(found.model), jax.tree.leaves(model))]
    norm = np.sqrt(sum(np.sum(v.astype(np.float64) ** 2) for v in moved))
    if clip == 1e-3:
        assert norm == pytest.approx(clip, rel=1e-3)
    else:  # 0 is no limit, and a limit beyond the gradient is none either
        assert norm > 0.01
        same(found.model, go(model, replace(config, clip=0.0)).model)


def test_convolutions_in_several_orders_train_and_resume(tmp_path, optax_promotes):
    arch = Architecture(n_h=(), visible="conv", conv_channels=3, conv_blocks=1, dropout=0.25, orders="symmetries")
    model = fresh(arch, 6, shape=(2, 3), key=jax.random.key(0))
    config = replace(BASE, optimizer="adam", schedule="cosine", clip=1.0, average=0.9, epochs=30, validate_every=10)
    rows = DeviceRows.put(PATTERNS)

    def loop(until, path=None):
        one = Loop([model], [config], rows, rows)
        if path is not None:
            one.load(path)
        while one.running and one.epoch < until:
            one.advance()
        return one

    whole, half = loop(30), loop(10)
    half.save(tmp_path / "checkpoint.safetensors")
    rest = loop(30, tmp_path / "checkpoint.safetensors")
    same(rest.state, whole.state)
    valid = [[row["valid"] for row in one.records[0].history] for one in (whole, rest)]
    assert valid[0] == valid[1]
    bounds = [row["bound"] for row in valid[0]]
    assert bounds[-1] < bounds[0] - 0.3


def test_a_chosen_model_outlives_the_next_better_one():
    rows = DeviceRows.put(Rows.from_array((np.random.default_rng(0).random((60, 6)) < 0.2).astype(np.uint8)))
    model = zoo.darn(6, 2, 3, key=jax.random.key(0))
    loop = Loop([model], [Training(epochs=9, batch=20, lr=1e-3, validate_every=1, average=0.0)], rows, rows)
    chosen, weights = [], []
    while loop.running:
        loop.advance()
        chosen.append(loop.chosen())
        weights.append(jax.tree.map(np.array, chosen[-1]))
    assert len({row["valid"]["bound"] for row in loop.records[0].history}) > 1
    assert loop.records[0].epoch > 2  # later weights were better
    jax.tree.map(np.testing.assert_array_equal, chosen, weights)


def test_validation_is_without_dropout():
    def validated(dropout):
        arch = Architecture(n_h=(2,), n_d=(), visible="conv", conv_channels=3, conv_blocks=1, dropout=dropout)
        model = randomised(fresh(arch, 6, shape=(2, 3), key=jax.random.key(0)), 1, scale=0.4)
        rows = DeviceRows.put(PATTERNS)
        program, hyper = Program(model, BASE, len(rows)), Hyper.of(BASE)
        return program.bound(program.start(model, hyper), hyper, rows, n_samples=2)

    same(validated(0.5), validated(0.0))


def test_observed_context_trains():
    """Two patterns told apart by the context alone cost nothing in the end."""
    context = np.tile(np.eye(2, dtype=np.float32), (10, 1))
    rows = Rows.from_array(np.tile(FOUR[:2], (10, 1)), context=context)
    arch = Architecture(n_h=(), n_d=(), visible="factorial")
    model = fresh(arch, 6, n_context=2, key=jax.random.key(0))
    found = fit(model, rows, rows, replace(BASE, lr=0.1, epochs=100, validate_every=100))
    assert found.bound < 0.1


def test_training_depends_on_its_seed():
    one, other = (go(small(), replace(BASE, seed=s)) for s in (1, 2))
    assert any(np.any(v != w) for v, w in zip(weights_of(one), weights_of(other)))


def test_the_model_given_is_left_alone():
    model = small()
    before = jax.tree.map(lambda w: np.array(w), eqx.filter(model, eqx.is_inexact_array))
    go(model, BASE)
    same(jax.tree.map(np.asarray, eqx.filter(model, eqx.is_inexact_array)), before)


def test_one_program_serves_every_hyper_parameter():
    """Compiled once for a grid over learning rates; another shape or term takes another program."""
    of = lambda model, **fields: Program.of(model, replace(BASE, **fields), 20)  # noqa: E731
    first = of(small(), weight_decay=0.1)
    assert first is of(small(seed=1), weight_decay=0.2, lr=0.5, momentum=0.0, seed=3)
    for other in (of(small()), of(small(), weight_decay=0.1, l1=0.1), of(small(n_d=(5,)), weight_decay=0.1)):
        assert other is not first


@pytest.mark.parametrize("field", ["lr", "momentum", "weight_decay", "l1", "average", "sparsity", "seed"])
def test_every_hyper_parameter_reaches_the_program(field):
    """Though the program is the same."""
    model = small(visible="linear")
    configs = [replace(BASE, **{field: v}) for v in ((1, 2) if field == "seed" else (0.1, 0.5))]
    assert Program.of(model, configs[0], 20) is Program.of(model, configs[1], 20)
    one, other = (go(model, c) for c in configs)
    if field == "sparsity":
        assert one.history[-1]["price"] != other.history[-1]["price"]
    assert any(np.any(v != w) for v, w in zip(weights_of(one), weights_of(other)))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_fit_is_silent_unless_asked(monkeypatch):
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    go(small(), BASE)
    assert screen.getvalue() == ""
    go(small(), BASE, progress=True)
    assert "training" in screen.getvalue()


# ---------------------------------------------------------------- early stopping


def test_the_best_epoch_is_kept(tmp_path):
    """Trained on two patterns and validated on the other two: it gets worse soon."""
    train, valid = Rows.from_array(np.tile(FOUR[:2], (10, 1))), Rows.from_array(FOUR[2:])
    config = replace(BASE, lr=0.02, epochs=400, patience=5)
    found = fit(zoo.fvsbn(6, key=jax.random.key(0)), train, valid, config, folder=tmp_path)
    bounds = [row["valid"]["bound"] for row in found.history]
    assert found.bound == min(bounds)
    assert found.epoch == 1 + int(np.argmin(bounds))
    assert found.epochs == len(bounds) == found.epoch + 5
    assert not found.interrupted
    assert exact(found.model, FOUR[2:]).nll == pytest.approx(found.bound, abs=1e-4)
    loaded, info = load_model(tmp_path)
    same(loaded, found.model)
    note = info["training"]
    assert (note["epoch"], note["valid_bound"], note["epochs"]) == (found.epoch, found.bound, found.epochs)
    assert [json.loads(line) for line in lines(tmp_path)] == found.history
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


# ---------------------------------------------------------------- runs broken off

LONG = replace(BASE, epochs=150, average=0.9, sparsity=0.3, noise="matrix", clip=0.5)

SCRIPT = """
import dataclasses, pathlib, sys
import jax, numpy as np
from darn import zoo
from darn.config import Architecture, Training
from darn.data import Moves, Rows
from darn.training import fit
build = jax.jit(zoo.build, static_argnums=(0, 1))  # as `small` does
model = build(Architecture(n_h=(2,), n_d=(4,), visible="factorial"), 6, key=jax.random.key(0))
rows = Rows.from_array(np.array({rows}, np.uint8))
fit(model, rows, rows, Training(**{config}), folder=pathlib.Path(sys.argv[1]))
"""


def lines(folder):
    path = folder / "metrics.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def interrupted_by_ctrl_c(folder, config):
    def press():
        for _ in range(6000):
            if len(lines(folder)) >= 10:
                os.kill(os.getpid(), signal.SIGINT)
                return
            time.sleep(0.01)

    thread = threading.Thread(target=press)
    thread.start()
    found = go(small(), config, folder=folder)
    thread.join()
    assert found.interrupted
    assert found.epochs == len(found.history) == len(lines(folder))


def killed(folder, config):
    script = textwrap.dedent(SCRIPT).format(
        rows=PATTERNS.unpack().tolist(), config=vars(replace(config, checkpoint_every=0.0))
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(folder)])
    try:
        began = time.monotonic()
        while len(lines(folder)) < 10:
            assert child.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() - began < 120
            time.sleep(0.005)
    finally:
        child.kill()
    assert child.wait() == -signal.SIGKILL


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    return folder, go(small(), LONG, folder=folder)


@pytest.mark.parametrize("stop", [interrupted_by_ctrl_c, killed])
def test_resuming_gives_the_same_run_bit_for_bit(stop, tmp_path, unbroken):
    whole_folder, whole = unbroken
    stop(tmp_path, LONG)
    assert 10 <= len(lines(tmp_path)) < 150
    load_model(tmp_path)  # what lies there is whole at any moment
    found = go(small(), LONG, folder=tmp_path, resume=True)
    same(found.model, whole.model)
    same(load_model(tmp_path)[0], load_model(whole_folder)[0])
    assert lines(tmp_path) == lines(whole_folder)
    assert (found.bound, found.epoch, found.epochs) == (whole.bound, whole.epoch, 150)
    assert not found.interrupted


def test_resuming_a_finished_run_changes_nothing(unbroken):
    folder, whole = unbroken
    before = lines(folder)
    found = go(small(), LONG, folder=folder, resume=True)
    same(found.model, whole.model)
    assert lines(folder) == before
    assert found.epochs == 150


@pytest.mark.parametrize("harm", ["missing", "cut off", "ahead", "other lines"])
def test_the_checkpoint_alone_is_enough_to_resume(harm, tmp_path, unbroken):
    """Whatever has become of the other files."""
    whole_folder, whole = unbroken
    go(small(), replace(LONG, epochs=70), folder=tmp_path)
    metrics, text = tmp_path / "metrics.jsonl", "".join(line + "\n" for line in lines(whole_folder))
    (tmp_path / "model.safetensors").unlink()
    metrics.unlink()
    if harm != "missing":
        metrics.write_text({"cut off": text[:9000], "ahead": text, "other lines": "{}\n" * 80 + "{"}[harm])
    found = go(small(), LONG, folder=tmp_path, resume=True)
    same(found.model, whole.model)
    same(load_model(tmp_path)[0], whole.model)
    assert lines(tmp_path) == lines(whole_folder)
    assert found.history == whole.history


def test_the_journal_is_never_rewritten_in_place(tmp_path, monkeypatch):
    """A run that fails as it resumes has lost nothing: the old lines stand until the new file is whole."""
    go(small(), BASE, folder=tmp_path)
    before = lines(tmp_path)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(DarnError, match="no space"):
        go(small(), replace(BASE, epochs=5), folder=tmp_path, resume=True)
    assert lines(tmp_path) == before


def test_checkpoints_are_exact_and_know_their_model(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    tree = {"w": jnp.asarray([0.1, 1e-30, -7.0]), "n": jnp.asarray(3, jnp.int32)}
    save_checkpoint(path, tree, {"epoch": 3, "bound": math.inf})
    same(load_checkpoint(path, jax.tree.map(jnp.zeros_like, tree)), tree)
    assert checkpoint_host(path) == {"epoch": 3, "bound": math.inf}
    with pytest.raises(DarnError, match="another model"):
        load_checkpoint(path, {"w": jnp.zeros(4), "n": jnp.asarray(0)})
    with pytest.raises(DarnError, match="another model"):
        load_checkpoint(path, {"v": jnp.zeros(3), "n": jnp.asarray(0)})
    with pytest.raises(DarnError, match="another model"):
        load_checkpoint(path, {"w": jnp.zeros(3, jnp.int32), "n": jnp.asarray(0)})
    whole = path.read_bytes()
    flipped = whole[:-1] + bytes([whole[-1] ^ 1])
    for bad in (*(whole[:cut] for cut in (0, 5, len(whole) // 2, len(whole) - 1)), flipped):
        path.write_bytes(bad)
        with pytest.raises(DarnError) as e:
            load_checkpoint(path, tree)
        assert "\n" not in str(e.value)


@pytest.mark.parametrize("optimizer", ["sgd", "rmsprop_graves"])
def test_a_loss_that_is_no_number_ends_the_run(optimizer, tmp_path):
    with pytest.raises(DarnError, match=r"finite.*lower learning rate") as e:
        go(small(), replace(BASE, optimizer=optimizer, lr=1e38, epochs=50), folder=tmp_path)
    assert "\n" not in str(e.value)
    assert "--" not in str(e.value)  # there is no command line in Python


def test_a_loss_that_is_no_number_leaves_the_best_model(tmp_path):
    kept = go(small(), BASE, folder=tmp_path)
    with pytest.raises(DarnError, match=rf"epoch {kept.epoch} is kept in .*lower learning rate"):
        go(small(), replace(BASE, lr=1e38, epochs=50), folder=tmp_path, resume=True)
    same(load_model(tmp_path)[0], kept.model)


def test_a_folder_that_cannot_be_written_is_the_users_to_mend(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DarnError, match="cannot write"):
        go(small(), BASE, folder=tmp_path / "file")


@pytest.mark.parametrize("noise", ["none", "matrix"])
def test_the_cost_of_the_code_rises_to_its_full_weight(noise):
    """At first the encoder hears nothing of L(h); after its share of the run a step is that of one without warm-up."""
    model = small()
    batch = replace(take(DeviceRows.put(PATTERNS), jnp.arange(10)), noise_key=jax.random.key(2))
    programs = {w: Program(model, replace(BASE, noise=noise, warmup=w, epochs=10), len(PATTERNS)) for w in (0.0, 0.5)}

    def after(at: int, warmup: float):
        hyper = Hyper.of(BASE)
        start = replace(programs[warmup].start(model, hyper), step=jnp.asarray(at, jnp.int32))
        state, metrics = jax.jit(programs[warmup].step)(start, hyper, batch)
        return state.params, metrics

    n = programs[0.0].n_steps
    for a, b in zip(*(jax.tree.leaves(after(n // 2, w)) for w in (0.0, 0.5))):
        np.testing.assert_allclose(a, b, atol=1e-6)
    (cold, said), (plain, honest) = after(0, 0.5), after(0, 0.0)
    prior = lambda p: p.decoder[1].layer.b - model.decoder[1].layer.b  # noqa: E731
    assert np.abs(prior(plain)).max() > 1e-4
    if noise == "none":
        assert np.all(prior(cold) == 0)
    np.testing.assert_allclose(said["bound"], honest["bound"], rtol=1e-6)  # what is reported is the whole length

"""Laws of stacks and of sampling from them, by enumeration over all (x, h)."""

from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from helpers import DEEP, MODELS, P_VALUE, chi_square, joint, make_model, number, split_code, states, table

from darn import DarnError, zoo
from darn.config import Architecture
from darn.inference import sampling
from darn.layers import NADE, EoNADE, Factorial, LinearAutoregressive, Mixture
from darn.model import Conditional, Stack

N_SAMPLES = 20_000
models = pytest.mark.parametrize("name", MODELS)
deep = pytest.mark.parametrize("name", DEEP)


def rows(c, n):
    """The context once for each row."""
    return None if c is None else np.tile(c, (n, 1))


@lru_cache
def drawn(name):
    model, c = make_model(name)
    return sampling.sample(model, N_SAMPLES, seed=3, context=rows(c, N_SAMPLES), log_joint=True, chunk=N_SAMPLES)


@models
def test_joint_sums_to_one(name):
    assert np.exp(table(name)[0]).sum() == pytest.approx(1, abs=2e-5)


@models
def test_encoder_sums_to_one_for_every_x(name):
    np.testing.assert_allclose(np.exp(table(name)[1]).sum(axis=1), 1, atol=2e-5)


@models
def test_equals_reference(name):
    model, c = make_model(name)
    log_p, log_q = table(name)
    codes = split_code(model, states(sum(model.n_h)))
    rng = np.random.default_rng(0)
    for _ in range(60):
        i, k = rng.integers(log_p.shape[0]), rng.integers(log_p.shape[1])
        x, h = states(model.n_x)[i], tuple(v[k] for v in codes)
        assert log_p[i, k] == pytest.approx(reference.log_p(model, x, h, c), abs=5e-5)
        assert log_q[i, k] == pytest.approx(reference.log_q(model, x, h, c), abs=5e-5)


@models
def test_ancestral_samples_follow_the_joint(name):
    model, _ = make_model(name)
    log_p, _ = table(name)
    found = drawn(name)
    assert found.x.dtype == np.uint8
    assert found.x.shape == (N_SAMPLES, model.n_x)
    assert tuple(y.shape for y in found.h) == tuple((N_SAMPLES, n) for n in model.n_h)
    x, h = number(found.x), number(np.concatenate([*found.h, np.zeros((N_SAMPLES, 0))], axis=1))
    assert chi_square(x, np.exp(log_p).sum(axis=1)) > P_VALUE
    assert chi_square(x * log_p.shape[1] + h, np.exp(log_p)) > P_VALUE


@models
def test_samples_carry_their_log_p(name):
    log_p, _ = table(name)
    found = drawn(name)
    x, h = number(found.x), number(np.concatenate([*found.h, np.zeros((N_SAMPLES, 0))], axis=1))
    np.testing.assert_allclose(found.log_joint, log_p[x, h], rtol=1e-5, atol=5e-5)


@pytest.mark.parametrize("name", ["1 linear, linear encoder", "2 skip, linear encoder | c", "3"])
def test_codes_follow_the_encoder(name):
    model, c = make_model(name)
    _, log_q = table(name)
    i = 2**model.n_x // 3
    x = np.tile(states(model.n_x)[i], (N_SAMPLES, 1))
    code = sampling.encode(model, x, context=rows(c, N_SAMPLES), seed=5)
    assert chi_square(number(np.concatenate(code.h, axis=1)), np.exp(log_q[i])) > P_VALUE


@deep
def test_encode_of_the_model_follows_the_encoder(name):
    """`Stack.encode`, which training and importance sampling use."""
    model, c = make_model(name)
    _, log_q = table(name)
    i = 2**model.n_x // 3
    x = jnp.asarray(states(model.n_x)[i])
    keys = jax.random.split(jax.random.key(8), N_SAMPLES)
    c = None if c is None else jnp.asarray(c)
    h = eqx.filter_jit(jax.vmap(lambda key: jnp.concatenate(model.encode(x, c, key=key))))(keys)
    assert chi_square(number(np.asarray(h)), np.exp(log_q[i])) > P_VALUE


@deep
def test_one_key_one_code(name):
    """`sampling.encode` with a seed draws what the model's own `encode` draws from the row's key."""
    model, c = make_model(name)
    x = states(model.n_x)[-2:]
    code = sampling.encode(model, x, context=rows(c, 2), seed=5)
    keys = sampling.row_keys(jax.random.key(5), np.arange(2, dtype=np.uint32))
    c = None if c is None else jnp.asarray(c)
    own = jax.jit(jax.vmap(lambda x, key: model.encode(x, c, key=key)))(jnp.asarray(x, jnp.float32), keys)
    assert all((a == np.asarray(b)).all() for a, b in zip(code.h, own, strict=True))


@pytest.mark.parametrize("name", ["1 linear | c", "2", "2 skip, linear encoder | c", "3 skip"])
def test_sampling_under_a_given_top_layer(name):
    model, c = make_model(name)
    top = model.n_h[-1]
    log_p = table(name)[0].reshape(2**model.n_x, -1, 2**top)
    given = states(top)[1]
    p = np.exp(log_p[..., 1])
    found = sampling.sample(model, N_SAMPLES, seed=9, context=rows(c, N_SAMPLES), h=(np.tile(given, (N_SAMPLES, 1)),))
    np.testing.assert_array_equal(found.h[-1], np.tile(given, (N_SAMPLES, 1)))
    cells = number(np.concatenate([found.x, *found.h[:-1]], axis=1))
    assert chi_square(cells, p / p.sum()) > P_VALUE


def test_sampling_under_all_layers_given():
    model, _ = make_model("2")
    h = tuple(np.tile(states(n)[1], (N_SAMPLES, 1)) for n in model.n_h)
    found = sampling.sample(model, N_SAMPLES, seed=1, h=h)
    p = np.exp(table("2")[0][:, number(np.concatenate([v[0] for v in h]))])
    assert chi_square(number(found.x), p / p.sum()) > P_VALUE


@pytest.mark.parametrize("name", ["fvsbn | c", "1 eonade", "2 skip, linear encoder | c"])
def test_samples_depend_on_the_seed_and_not_on_the_chunk(name):
    model, c = make_model(name)
    draw = lambda seed, chunk: sampling.sample(model, 50, seed=seed, context=rows(c, 50), chunk=chunk)  # noqa: E731
    whole, again, pieces, other = draw(1, 50), draw(1, 50), draw(1, 7), draw(2, 50)
    for v, w, p in zip((whole.x, *whole.h), (again.x, *again.h), (pieces.x, *pieces.h)):
        np.testing.assert_array_equal(v, w)
        np.testing.assert_array_equal(v, p)
    assert np.any(whole.x != other.x)
    assert whole.log_joint is None
    np.testing.assert_array_equal(sampling.sample(model, 20, seed=1, context=rows(c, 20), chunk=7).x, whole.x[:20])


@pytest.mark.parametrize("name", ["fvsbn | c", "2 skip, linear encoder | c"])
def test_packed_samples_are_the_samples(name):
    model, c = make_model(name)
    plain = sampling.sample(model, 30, seed=1, context=rows(c, 30))
    packed = sampling.sample(model, 30, seed=1, context=rows(c, 30), packed=True, chunk=7)
    for bits, bytes_ in zip((plain.x, *plain.h), (packed.x, *packed.h), strict=True):
        np.testing.assert_array_equal(np.unpackbits(bytes_, axis=1, count=bits.shape[1]), bits)
    none = sampling.sample(model, 0, context=rows(c, 0), packed=True)
    assert [v.shape[1] for v in (none.x, *none.h)] == [v.shape[1] for v in (packed.x, *packed.h)]


@pytest.mark.parametrize("seed", [None, 4])
@pytest.mark.parametrize("name", ["1 factorial", "2 skip, linear encoder | c"])
def test_codes_do_not_depend_on_the_chunk(name, seed):
    model, c = make_model(name)
    x = states(model.n_x)[:11]
    whole, pieces = (sampling.encode(model, x, context=rows(c, 11), seed=seed, chunk=k) for k in (11, 4))
    for v, w in zip(whole.h, pieces.h):
        np.testing.assert_array_equal(v, w)
    for v, w in zip((*whole.q, whole.x), (*pieces.q, pieces.x)):
        np.testing.assert_allclose(v, w, rtol=1e-5)


@deep
def test_code_of_a_row_is_its_most_probable_path(name):
    model, c = make_model(name)
    x = states(model.n_x)
    code = sampling.encode(model, x, context=rows(c, len(x)))
    assert tuple(h.shape for h in code.h) == tuple((len(x), n) for n in model.n_h)
    for h, q in zip(code.h, code.q):
        np.testing.assert_array_equal(h, q > 0.5)
    # the last unit's probability from log q alone: q(h) / (q(h) + q(h with that unit flipped))
    log_q = table(name)[1]
    flipped = np.concatenate(code.h, axis=1)
    i, k = np.arange(len(x)), number(flipped)
    flipped[:, -1] ^= 1
    p = 1 / (1 + np.exp(log_q[i, number(flipped)] - log_q[i, k]))
    last = np.where(code.h[-1][:, -1] == 1, p, 1 - p)
    np.testing.assert_allclose(code.q[-1][:, -1], last, rtol=1e-4, atol=1e-5)
    if isinstance(model.decoder[0].layer, Factorial):  # the way back: p(x_j = 1 | h), by enumeration
        p = np.exp(table(name)[0])[:, k]
        np.testing.assert_allclose(code.x, ((p / p.sum(0)).T @ states(model.n_x)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["fvsbn", "1 factorial", "2"])
def test_nothing_asked_for_is_nothing(name):
    model, _ = make_model(name)
    none = sampling.sample(model, 0, log_joint=True)
    assert none.x.shape == (0, model.n_x)
    assert none.log_joint is not None
    assert len(none.log_joint) == 0
    assert sampling.encode(model, np.zeros((0, model.n_x))).x.shape == (0, model.n_x)
    with pytest.raises(DarnError, match="GiB of memory"):  # at once, not when memory is full
        sampling.sample(model, 10**13)


@pytest.mark.parametrize("visible", ["factorial", "linear", "nade", "eonade", "mixture"])
def test_visible_biases_start_from_the_mean(visible):
    mean = np.array([0.0, 0.2, 0.5, 0.9, 1.0])
    model = zoo.build(Architecture(n_h=(), visible=visible, n_nade=(3,)), 5, mean=mean, key=jax.random.key(0))
    layer = model.decoder[0].layer
    b = np.asarray((layer.core if isinstance(layer, EoNADE) else layer).b, np.float64)
    np.testing.assert_allclose(reference.sigmoid(b), np.clip(mean, 1e-3, 1 - 1e-3), rtol=1e-4)
    if visible in ("factorial", "linear"):  # all other weights are zero, so that the model has this mean
        p = np.exp(joint(model, None)[0][:, 0])
        np.testing.assert_allclose(p @ states(5), np.clip(mean, 1e-3, 1 - 1e-3), rtol=1e-3)


def test_skip_adds_parents_and_nothing_else():
    nearest, every = make_model("3")[0], make_model("3 skip")[0]
    assert [p.net.maps[0].W.shape[1] for p in nearest.encoder] == [3, 2, 3]
    assert [p.net.maps[0].W.shape[1] for p in every.encoder] == [3, 5, 8]
    assert [p.net.maps[0].W.shape[1] for p in every.decoder[:-1]] == [7, 5, 2]


def test_layers_must_fit():
    model, _ = make_model("2")
    with pytest.raises(ValueError, match="one more conditional"):
        Stack(model.decoder, model.encoder[:1])
    with pytest.raises(ValueError, match="the encoder has a layer of"):
        Stack(model.decoder, (model.encoder[0], Conditional(Factorial(7, 3, key=jax.random.key(0)))))


ZOO = {  # name: (builder, n_h, class of the visible layer)
    "fvsbn": (lambda key: zoo.fvsbn(6, key=key), (), LinearAutoregressive),
    "nade": (lambda key: zoo.nade(6, 4, key=key), (), NADE),
    "eonade": (lambda key: zoo.eonade(6, (4, 3), 3, key=key), (), EoNADE),
    "mixture": (lambda key: zoo.mixture(6, 3, key=key), (), Mixture),
    "darn": (lambda key: zoo.darn(6, 3, 4, key=key), (3,), Factorial),
    "deep_darn": (lambda key: zoo.deep_darn(6, (2, 3, 2), 3, key=key), (2, 3, 2), Factorial),
    "fdarn": (lambda key: zoo.fdarn(6, 3, 4, key=key), (3,), Factorial),
    "local_darn": (lambda key: zoo.local_darn((2, 3), 3, filters=2, key=key), (3,), LinearAutoregressive),
}


@pytest.mark.parametrize("name", ZOO)
def test_zoo(name):
    """Structure only: `MODELS` holds the laws."""
    build, n_h, visible = ZOO[name]
    model = build(jax.random.key(1))
    assert (model.n_x, model.n_h, model.n_layers) == (6, n_h, len(n_h))
    assert isinstance(model.decoder[0].layer, visible)
    assert model.skip == (name == "deep_darn")
    if n_h:
        assert (model.decoder[0].net is None) == (name == "fdarn")
        assert all(isinstance(part.layer, LinearAutoregressive) for part in model.decoder[1:])
        assert all(isinstance(part.layer, Factorial) for part in model.encoder)

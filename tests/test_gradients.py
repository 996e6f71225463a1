"""Laws of the gradient estimators, by enumeration and by Monte Carlo against enumeration."""

from functools import lru_cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import randomised, states
from jax.flatten_util import ravel_pytree
from scipy import stats

from darn import zoo
from darn.config import Architecture, Training
from darn.data import Rows
from darn.gradients import LOCAL, bernoulli, straight_through
from darn.inference.objective import ESTIMATORS, description_length, make_loss
from darn.training import DeviceRows, Hyper, Program

local = pytest.mark.parametrize("bit", LOCAL.values(), ids=LOCAL)

# ---------------------------------------------------------------- one bit


@local
def test_forward_is_the_threshold(bit):
    a = jnp.asarray([-100.0, -2.0, 0.0, 0.5, 100.0])
    for u in (0.001, 0.3, 0.999):
        expected = u < 1 / (1 + np.exp(-np.asarray(a, np.float64)))
        np.testing.assert_array_equal(bit(a, jnp.full(5, u)), expected)


def pull(bit, a, u, ct):
    return np.asarray(jax.vjp(lambda a: bit(a, u), a)[1](ct)[0], np.float64)


def test_backward_formulas():
    rng = np.random.default_rng(0)
    a, u, ct = (jnp.asarray(v, jnp.float32) for v in (rng.normal(size=50), rng.random(50), rng.normal(size=50)))
    q = 1 / (1 + np.exp(-np.asarray(a, np.float64)))
    h = np.asarray(u) < q
    # Eq. (24): the gradient with respect to q(H=1) is df/dh / (2 q(h)), and dq/da = q (1-q)
    np.testing.assert_allclose(
        pull(bernoulli, a, u, ct), q * (1 - q) / (2 * np.where(h, q, 1 - q)) * np.asarray(ct), rtol=1e-5
    )
    np.testing.assert_allclose(pull(straight_through, a, u, ct), q * (1 - q) * np.asarray(ct), rtol=1e-5)


@local
def test_backward_is_finite_at_any_logit(bit):
    a = jnp.asarray([-1e30, -1000.0, -100.0, -90.0, 90.0, 100.0, 1000.0, 1e30])
    for u in (0.0, 0.5, 0.9999999):
        g = pull(bit, a, jnp.full(8, u), jnp.ones(8))
        assert np.all(np.isfinite(g))
        assert np.all(np.abs(g) <= 0.5)


def expected_pull(bit, f, a):
    """The estimator's mean over u, exactly: one u in the middle of each of the 2^n boxes."""
    q = 1 / (1 + np.exp(-np.asarray(a, np.float64)))
    h = states(len(a))
    u = jnp.asarray(np.where(h == 1, q / 2, (1 + q) / 2), jnp.float32)
    g = jax.vmap(jax.grad(lambda a, u: f(bit(a, u))), (None, 0))(a, u)
    weight = np.prod(np.where(h == 1, q, 1 - q), axis=1)
    return weight @ np.asarray(g, np.float64)


def true_gradient(f, a):
    h = jnp.asarray(states(len(a)))

    def mean(a):
        log_q = jnp.sum(jax.nn.log_sigmoid((2 * h - 1) * a[None]), axis=1)
        return jnp.dot(jnp.exp(log_q), jax.vmap(f)(h))

    return np.asarray(jax.grad(mean)(a), np.float64)


A = jnp.asarray([0.7, -1.3, 0.2, 1.9])
C = jnp.asarray(np.random.default_rng(5).normal(size=(4, 4)), jnp.float32)
QUADRATIC = {
    "linear": lambda h: jnp.dot(C[0], h),
    "squares": lambda h: jnp.dot(C[1], h * h) - jnp.dot(C[2], h),
    "form": lambda h: jnp.dot(h, C @ h) + jnp.dot(C[3], h),
    "quadratic in each unit": lambda h: (h[0] ** 2 - 2 * h[0]) * (1 + h[1] ** 2) * (h[2] - 3) * (2 - h[3] ** 2),
}


@pytest.mark.parametrize("f", QUADRATIC.values(), ids=QUADRATIC)
def test_paper_estimator_is_exact_for_quadratic_functions(f):
    np.testing.assert_allclose(expected_pull(bernoulli, f, A), true_gradient(f, A), rtol=1e-4, atol=1e-5)


def test_paper_estimator_is_biased_for_cubic_functions():
    f = lambda h: jnp.sum(h**3)  # noqa: E731
    np.testing.assert_allclose(expected_pull(bernoulli, f, A), 1.5 * true_gradient(f, A), rtol=1e-4)


def test_straight_through_is_biased_for_quadratic_functions():
    f = QUADRATIC["squares"]
    assert np.max(np.abs(expected_pull(straight_through, f, A) - true_gradient(f, A))) > 0.05
    linear = QUADRATIC["linear"]
    np.testing.assert_allclose(expected_pull(straight_through, linear, A), true_gradient(linear, A), rtol=1e-4)


# ---------------------------------------------------------------- a stack of two stochastic layers

PRICE = np.array([0.4, 0.25], np.float32)
X = np.array([1, 0, 1, 1], np.float32)
N_SEEDS = 20_000


def make_stack(encoder="factorial"):
    arch = Architecture(n_h=(3, 2), n_d=(3,), visible="linear", encoder=encoder)
    return randomised(zoo.build(arch, 4, key=jax.random.key(0)), 3, scale=0.5)


def expected_loss(model, x, warm=1.0):
    """The priced description length, summed over every code; the code's cost at `warm` of its weight."""
    codes = jnp.asarray(states(sum(model.n_h)))

    def one(code):
        h = tuple(jnp.split(code, np.cumsum(model.n_h)[:-1]))
        q = model.log_q(x, h)
        price = sum(p * jnp.sum(v) for p, v in zip(PRICE, h))
        x_given_h, *above = model.log_p_layers(x, h)
        return jnp.exp(q) * (warm * (q - sum(above)) - x_given_h + price)

    return jnp.sum(jax.vmap(one)(codes))


@eqx.filter_jit
def _truth(model, warm=1.0):
    return eqx.filter_grad(expected_loss)(model, jnp.asarray(X), warm)


@lru_cache
def stack(weights, encoder="factorial"):
    """(model, the true gradients of its encoder and its decoder), weights random or briefly trained."""
    model = make_stack(encoder)
    if weights == "trained":
        params, static = eqx.partition(model, eqx.is_inexact_array)
        rows = jnp.asarray(np.stack([X, 1 - X, states(4)[5]]))

        def loss(params):
            return jnp.mean(jax.vmap(lambda x: expected_loss(eqx.combine(params, static), x))(rows))

        def step(params, _):
            return jax.tree.map(lambda w, g: w - 0.1 * g, params, jax.grad(loss)(params)), None

        params, _ = jax.jit(lambda s: jax.lax.scan(step, s, None, length=150))(params)
        model = eqx.combine(params, static)
    return model, flat(_truth(model))


def flat(gradient):
    return tuple(np.asarray(ravel_pytree(part)[0], np.float64) for part in (gradient.encoder, gradient.decoder))


@lru_cache
def sampler(estimator, log_q, n_samples, warm=1.0):
    """Gradients at many seeds, compiled once for all weights: (seeds, weights) of encoder and of decoder."""
    loss = make_loss(estimator, n_samples=n_samples, log_q=log_q)

    @eqx.filter_jit
    def gradients(model, keys):
        def one(key):
            at_key = lambda m: loss(m, jnp.asarray(X), None, jnp.asarray(PRICE), warm, key=key)  # noqa: E731
            g, dl = eqx.filter_grad(at_key, has_aux=True)(model)
            return ravel_pytree(g.encoder)[0], ravel_pytree(g.decoder)[0], dl.total

        return jax.vmap(one)(keys)

    return gradients


@lru_cache
def sampled(estimator, log_q, weights, n_samples=1, n_seeds=N_SEEDS, encoder="factorial"):
    model, _ = stack(weights, encoder)
    keys = jax.random.split(jax.random.key(17), n_seeds)
    found = sampler(estimator, log_q, n_samples)(model, keys)
    return tuple(np.asarray(v, np.float64) for v in found)


def hotelling(draws, truth):
    """The p-value of Hotelling's test that the draws have this mean: all directions in one number."""
    d = draws.mean(axis=0) - truth
    values, vectors = np.linalg.eigh(np.cov(draws.T))
    live = values > 1e-6 * values.max()
    along = vectors.T @ d
    np.testing.assert_allclose(along[~live], 0, atol=2e-3)  # where there is no noise, there is no excuse either
    statistic = len(draws) * np.sum(along[live] ** 2 / values[live])
    return stats.chi2.sf(statistic, live.sum())


def relative_bias(draws, truth):
    """|bias| / |truth|, the share of the noise taken off."""
    d2 = np.sum((draws.mean(axis=0) - truth) ** 2) - np.sum(draws.var(axis=0)) / len(draws)
    return np.sqrt(max(d2, 0) / np.sum(truth**2))


CASES = [(e, "sampled") for e in ESTIMATORS] + [(e, "entropy") for e in LOCAL]
cases = pytest.mark.parametrize(("estimator", "log_q"), CASES)
weights = pytest.mark.parametrize("weights", ["random", "trained"])
ENOUGH = 1e-3  # p-value; seeded


@weights
@cases
def test_decoder_gradient_is_unbiased(estimator, log_q, weights):
    _, (_, decoder) = stack(weights)
    assert hotelling(sampled(estimator, log_q, weights)[1], decoder) > ENOUGH


@weights
@pytest.mark.parametrize("estimator", ["reinforce", "disarm"])
def test_score_function_estimators_are_unbiased(estimator, weights):
    _, (encoder, _) = stack(weights)
    assert hotelling(sampled(estimator, "sampled", weights)[0], encoder) > ENOUGH


@weights
@pytest.mark.parametrize("log_q", ["sampled", "entropy"])
def test_paper_estimator_is_less_biased_than_straight_through(log_q, weights):
    _, (encoder, _) = stack(weights)
    darn, naive = (sampled(e, log_q, weights)[0] for e in ("darn", "straight_through"))
    assert hotelling(naive, encoder) < 1e-6  # the test can see a bias
    assert relative_bias(darn, encoder) < 0.65 * relative_bias(naive, encoder)
    assert relative_bias(darn, encoder) < 0.15


@cases
def test_several_samples_have_the_same_mean_and_less_noise(estimator, log_q):
    _, (encoder, decoder) = stack("random")
    one = sampled(estimator, log_q, "random")
    four = sampled(estimator, log_q, "random", 4, 4000)
    assert hotelling(four[1], decoder) > ENOUGH
    if estimator not in LOCAL:
        assert hotelling(four[0], encoder) > ENOUGH
    for a, b in zip(one, four):  # reinforce and disarm take two at the least
        assert b.var(axis=0).sum() < (0.4 if estimator in LOCAL else 0.75) * a.var(axis=0).sum()
    error = (one[2].var() / len(one[2]) + four[2].var() / len(four[2])) ** 0.5
    assert abs(one[2].mean() - four[2].mean()) < 4 * error


@cases
def test_the_codes_cost_counts_as_much_as_it_should(estimator, log_q):
    """Whatever its weight, the gradient is that of the enumerated loss, and the reported length is the whole one."""
    model, _ = stack("random")
    keys = jax.random.split(jax.random.key(17), 4000)
    found = sampler(estimator, log_q, 1, 0.25)(model, keys)
    encoder, decoder = flat(_truth(model, 0.25))
    assert hotelling(np.asarray(found[1], np.float64), decoder) > ENOUGH
    if estimator not in LOCAL:
        assert hotelling(np.asarray(found[0], np.float64), encoder) > ENOUGH
    np.testing.assert_allclose(found[2], sampled(estimator, log_q, "random", 1, 4000)[2], rtol=1e-5)


def weighted_bound(model, x, warm=1.0):
    """-log of the mean weight of two encodings, summed over every pair of codes; and the gradient of what is lowered
    where the code's cost counts for less."""
    codes = jnp.asarray(states(sum(model.n_h)))

    def logs(code):
        h = tuple(jnp.split(code, np.cumsum(model.n_h)[:-1]))
        return model.log_q(x, h), *model.log_p_layers(x, h)

    log_q, log_x, *log_h = jax.vmap(logs)(codes)
    log_w = log_x + sum(log_h) - log_q
    pairs = -(jnp.logaddexp(log_w[:, None], log_w[None]) - jnp.log(2.0))
    expected = lambda of_pair: jnp.sum(jnp.exp(log_q[:, None] + log_q[None]) * of_pair)  # noqa: E731
    if warm == 1:
        return expected(pairs)
    share = jax.lax.stop_gradient(jax.nn.sigmoid(log_w[:, None] - log_w[None]))  # of the first of the two
    length = -log_x + warm * (log_q - sum(log_h))
    lowered = expected(share * length[:, None] + (1 - share) * length[None])
    return lowered + jax.lax.stop_gradient(expected(pairs) - lowered)


@weights
@pytest.mark.parametrize(("log_q", "warm"), [("sampled", 1.0), ("entropy", 1.0), ("sampled", 0.25)])
def test_weighted_encodings(log_q, warm, weights):
    """The decoder's gradient is that of the enumerated bound; the encoder's that of the description length."""
    model, _ = stack(weights)
    truth = eqx.filter_jit(eqx.filter_value_and_grad(weighted_bound))(model, jnp.asarray(X), warm)
    loss = {w: make_loss("darn", n_samples=2, log_q=log_q, weighted=w) for w in (False, True)}

    @eqx.filter_jit
    def gradients(model, keys, weighted):
        def one(key):
            at_key = lambda m: loss[weighted](m, jnp.asarray(X), None, jnp.asarray(PRICE), warm, key=key)  # noqa: E731
            g, dl = eqx.filter_grad(at_key, has_aux=True)(model)
            bound = dl.weighted if weighted else dl.total
            return ravel_pytree(g.encoder)[0], ravel_pytree(g.decoder)[0], bound, dl.total

        return jax.vmap(one)(keys)

    keys = jax.random.split(jax.random.key(17), N_SEEDS)
    found, plain = ([np.asarray(v, np.float64) for v in gradients(model, keys, w)] for w in (True, False))
    encoder, decoder, bound, total = found
    assert hotelling(decoder, flat(truth[1])[1]) > ENOUGH
    assert hotelling(plain[1], flat(truth[1])[1]) < 1e-6  # another bound has another gradient, and the test sees it
    np.testing.assert_allclose(encoder, plain[0], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(total, plain[3], rtol=1e-5)
    if log_q == "sampled":
        assert np.all(bound <= total + 1e-5)  # Jensen
    assert abs(bound.mean() - float(truth[0])) < 4 * bound.std() / len(bound) ** 0.5


@pytest.mark.parametrize("n_samples", [1, 4000])
def test_validation_weights_as_many_encodings_as_training(n_samples):
    model, _ = stack("random")
    truth = float(eqx.filter_jit(weighted_bound)(model, jnp.asarray(X)))
    config = Training(n_samples=2, weighted=True)
    program, hyper = Program(model, config, 1), Hyper.of(config)
    rows = Rows.from_array(np.tile(np.asarray(X, np.uint8), (20_000 // n_samples, 1)))
    found = program.bound(program.start(model, hyper), hyper, DeviceRows.put(rows), n_samples=n_samples)
    np.testing.assert_allclose(found["weighted"], truth, rtol=0.01)
    assert found["bound"] > 1.02 * found["weighted"]  # that of one encoding is another


def test_what_cannot_be_weighted():
    with pytest.raises(ValueError, match="2 samples"):
        make_loss("darn", n_samples=1, weighted=True)
    with pytest.raises(ValueError, match="estimator darn or straight_through"):
        make_loss("reinforce", n_samples=4, weighted=True)
    model = zoo.build(Architecture(n_h=(2,), n_d=(), visible="eonade"), len(X), key=jax.random.key(0))
    with pytest.raises(ValueError, match="trains on an estimate"):
        make_loss("darn", n_samples=2, weighted=True)(model, jnp.asarray(X), None, jnp.zeros(1), key=jax.random.key(0))


@pytest.mark.parametrize("estimator", ["darn", "reinforce"])
def test_autoregressive_encoder(estimator):
    _, (encoder, decoder) = stack("random", "linear")
    found = sampled(estimator, "sampled", "random", encoder="linear")
    assert hotelling(found[1], decoder) > ENOUGH
    if estimator == "reinforce":
        assert hotelling(found[0], encoder) > ENOUGH
    else:
        assert relative_bias(found[0], encoder) < 0.2


@pytest.mark.parametrize("encoder", ["factorial", "linear"])
def test_inside_log_q_the_encoder_is_frozen(encoder):
    """Where bits pass nothing back, nothing reaches the encoder: what is left out has mean zero and much noise."""
    deaf = lambda a, u: jax.lax.stop_gradient(bernoulli(a, u))  # noqa: E731
    one = lambda m: description_length(m, jnp.asarray(X), key=jax.random.key(3), bit=deaf).total  # noqa: E731
    encoder_part, decoder_part = flat(eqx.filter_jit(eqx.filter_grad(one))(make_stack(encoder)))
    assert np.all(encoder_part == 0)
    assert np.any(decoder_part != 0)


def test_what_needs_a_factorial_encoder_says_so():
    model = make_stack("linear")
    for loss in (make_loss("disarm"), make_loss("darn", log_q="entropy")):
        with pytest.raises(ValueError, match="factorial"):
            loss(model, jnp.asarray(X), None, jnp.asarray(PRICE), key=jax.random.key(0))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_without_bits_every_estimator_gives_the_gradient_itself(estimator):
    model = randomised(zoo.fvsbn(4, key=jax.random.key(0)), 4)
    loss = partial(make_loss(estimator, n_samples=2), x=jnp.asarray(X), context=None, price=jnp.zeros(0))
    loss = partial(loss, key=jax.random.key(1))
    found, dl = eqx.filter_jit(eqx.filter_grad(loss, has_aux=True))(model)
    truth = eqx.filter_jit(eqx.filter_grad(lambda m: -m.log_p(jnp.asarray(X))))(model)
    for v, w in zip(jax.tree.leaves(found), jax.tree.leaves(truth)):
        np.testing.assert_allclose(v, w, rtol=1e-5, atol=1e-6)
    assert float(dl.total) == pytest.approx(-float(model.log_p(jnp.asarray(X))), abs=1e-5)


def test_every_estimator_is_on_the_list():
    assert {e for e, _ in CASES} == set(ESTIMATORS)

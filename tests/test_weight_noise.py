"""Laws of adaptive weight noise: its cost is the KL, its answer on a linear-Gaussian model the known one."""

import math
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import MODELS, make_model, randomised, same
from scipy import stats
from test_training import BASE, PATTERNS, go, small, take

from darn import zoo
from darn.data import Rows
from darn.nn import CausalDense, CausalLocal
from darn.training import DeviceRows, Hyper, Program, WeightNoise, fit, gradient_and_squares, weight_noise
from darn.training.weight_noise import GRADIENTS, PRIORS

HYPER = Hyper.of(BASE)
priors = pytest.mark.parametrize("prior", PRIORS)
ways = pytest.mark.parametrize("how", GRADIENTS)


def floats(model):
    return eqx.filter(model, eqx.is_inexact_array)


def random_sigmas(noise, seed=0):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda s: jnp.asarray(rng.normal(-2, 0.7, s.shape), jnp.float32), noise.start(0.1))


def weights_in_use(model, log_sigma):
    """(mu, sigma) of each weight matrix in float64, told by hand: all of it, or what precedes the unit itself."""
    is_causal = lambda m: isinstance(m, CausalDense | CausalLocal)  # noqa: E731
    found = []
    for m, s in zip(*(jax.tree.leaves(t, is_leaf=is_causal) for t in (floats(model), log_sigma))):
        if isinstance(m, CausalLocal):  # a window's rows above, and of its last row the places to the left; then
            *_, rows, columns, channels, _ = m.W.shape  # in the cell itself the channels before
            place = np.arange(rows * columns).reshape(rows, columns)
            own = place[-1, columns // 2]
            used = np.broadcast_to((place < own)[:, :, None, None], m.W.shape[2:]).copy()
            used[-1, columns // 2] = np.triu(np.ones((channels, channels), bool), 1)
            used = np.broadcast_to(used, m.W.shape)
            m, s = np.asarray(m.W)[used], np.asarray(s.W)[used]
        elif is_causal(m):
            low = np.tril_indices(m.n, -1)
            m, s = np.asarray(m.W)[low], np.asarray(s.W)[low]
        found.append((np.float64(m).ravel(), np.exp(np.float64(s).ravel())))
    return found


def kl(mu, sigma, a, s2):
    """KL(N(mu, sigma^2) || N(a, s2)), summed, from its definition for two Gaussians."""
    return np.sum(np.log(math.sqrt(s2) / sigma) + (sigma**2 + (mu - a) ** 2) / (2 * s2) - 0.5)


def least(mu, sigma):
    a = mu.mean()
    return a, np.mean(sigma**2 + (mu - a) ** 2)


# ---------------------------------------------------------------- cost


@priors
@pytest.mark.parametrize("name", MODELS)
def test_cost_is_the_kl_from_the_best_prior(name, prior):
    model, _ = make_model(name)
    exact = jax.tree.map(lambda w: None if w.ndim < 2 else w, floats(model))  # biases have no noise
    noise = WeightNoise(model, 10, prior)
    log_sigma = random_sigmas(noise)
    groups = weights_in_use(exact, log_sigma)
    if prior == "pooled" and groups:
        groups = [tuple(np.concatenate(v) for v in zip(*groups))]
    expected = sum(kl(*g, *least(*g)) for g in groups)
    assert float(noise.cost(floats(model), log_sigma)) == pytest.approx(expected, rel=1e-5, abs=1e-4)
    for mu, sigma in groups:  # no other prior is cheaper
        a, s2 = least(mu, sigma)
        others = [(a + da, s2 * f) for da in (-0.01, 0, 0.01) for f in (0.97, 1, 1.03) if da or f != 1]
        assert all(kl(mu, sigma, *other) > kl(mu, sigma, a, s2) for other in others)


@priors
def test_gradient_of_the_cost(prior):
    """(mu - a) / (N s2) in mu and (sigma^2 / s2 - 1) / N in log sigma."""
    model = randomised(zoo.fvsbn(7, key=jax.random.key(0)), 0)
    noise, params = WeightNoise(model, 50, prior), floats(model)
    log_sigma = random_sigmas(noise)
    found = noise.gradients(lambda w, row: (jnp.zeros(()), ()), params, log_sigma, jnp.zeros(4), key=jax.random.key(0))
    ((mu, sigma),) = weights_in_use(jax.tree.map(lambda w: None if w.ndim < 2 else w, params), log_sigma)
    a, s2 = least(mu, sigma)
    low = np.tril_indices(7, -1)
    in_mu, in_sigma = found.mu.decoder[0].layer, found.log_sigma.decoder[0].layer
    np.testing.assert_allclose(in_mu.W.W[low], (mu - a) / (50 * s2), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(in_sigma.W.W[low], (sigma**2 / s2 - 1) / 50, rtol=1e-4, atol=1e-6)
    for g in (in_mu.W.W, in_sigma.W.W):
        assert not np.any(np.triu(g))  # what is not in use costs nothing
    assert not np.any(in_mu.b)
    assert in_sigma.b is None
    assert float(found.cost) == pytest.approx(kl(mu, sigma, a, s2) / 50, rel=1e-5)


def test_every_weight_is_drawn_from_its_gaussian():
    model, _ = make_model("2 skip")
    noise, params = WeightNoise(model, 10), floats(model)
    log_sigma = random_sigmas(noise)
    draw = lambda key: noise.perturbed(params, log_sigma, noise.draw(log_sigma, key=key))  # noqa: E731
    drawn = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), 200))
    standard = []
    for w, mu in zip(jax.tree.leaves(drawn), jax.tree.leaves(params)):
        if mu.ndim < 2:
            np.testing.assert_array_equal(w, np.broadcast_to(mu, w.shape))
    for w, mu, s in zip(*map(jax.tree.leaves, (noise.noisy(drawn), noise.noisy(params), log_sigma))):
        standard.append(((w - mu[None]) / np.exp(s)[None]).reshape(200, -1))
    standard = np.concatenate(standard, axis=1).astype(np.float64)
    assert stats.kstest(standard.ravel(), "norm").pvalue > 1e-3
    assert np.max(np.abs(np.corrcoef(standard.T) - np.eye(standard.shape[1]))) < 5 / math.sqrt(200)


# ---------------------------------------------------------------- a linear-Gaussian model: y = W x + noise

N, D, S = 400, 6, 0.7
RNG = np.random.default_rng(1)
# Orthogonal columns: the posterior is then a product of Gaussians, as the noise is.
X = np.linalg.qr(RNG.normal(size=(N, D)))[0] * np.array([20, 10, 5, 3, 2, 1.0])
Y = X @ RNG.normal(0.3, 0.5, D) + S * RNG.normal(size=N)
ROWS = tuple(jnp.asarray(v, jnp.float32) for v in (X, Y))


def squared_error(params, row):
    x, y = row
    return 0.5 * ((y - (params["W"] @ x)[0]) / S) ** 2, ()


def posterior():
    """mu, sigma^2 and the prior of empirical Bayes, to a fixed point of the closed forms."""
    a, s2 = 0.0, 1.0
    for _ in range(10_000):
        sigma2 = 1 / (np.sum(X**2, axis=0) / S**2 + 1 / s2)
        mu = sigma2 * (X.T @ Y / S**2 + a / s2)
        a, s2 = least(mu, np.sqrt(sigma2))
    return mu, sigma2, a, s2


def at(mu, sigma2):
    params = {"W": jnp.asarray(mu, jnp.float32)[None]}
    return WeightNoise(params, N), params, {"W": jnp.asarray(0.5 * np.log(sigma2), jnp.float32)[None]}


def test_total_cost_at_the_posterior_is_the_evidence():
    mu, sigma2, a, s2 = posterior()
    noise, params, log_sigma = at(mu, sigma2)
    residual = Y - X @ mu
    expected_loss = 0.5 * (np.sum(residual**2) + np.sum(X**2 @ sigma2)) / S**2 + 0.5 * N * math.log(2 * math.pi * S**2)
    covariance = S**2 * np.eye(N) + s2 * X @ X.T
    evidence = stats.multivariate_normal(X @ np.full(D, a), covariance).logpdf(Y)
    assert expected_loss + float(noise.cost(params, log_sigma)) == pytest.approx(-evidence, rel=1e-5)


def mean_gradient(noise, params, log_sigma, how, n=4000):
    one = lambda key: noise.gradients(squared_error, params, log_sigma, ROWS, key=key, how=how)[:2]  # noqa: E731
    found = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(2), n))
    values = [np.asarray(g["W"][:, 0], np.float64) for g in found]
    return [(v.mean(axis=0), v.std(axis=0) / math.sqrt(n)) for v in values]


def test_reparametrised_gradient_is_unbiased_and_vanishes_at_the_posterior():
    mu, sigma2, a, s2 = posterior()
    curvature = np.mean(X**2, axis=0) / S**2
    for dm, f in ((0.0, 1.0), (0.2, 0.5), (-0.3, 3.0)):
        m, v = mu + dm, sigma2 * f
        a, s2 = least(m, np.sqrt(v))
        in_mu = -X.T @ (Y - X @ m) / (N * S**2) + (m - a) / (N * s2)
        in_log_sigma = v * curvature + (v / s2 - 1) / N
        for (g, error), expected in zip(mean_gradient(*at(m, v), "reparametrised"), (in_mu, in_log_sigma)):
            assert np.all(np.abs(g - expected) < 5 * error + 1e-6)
            if f == 1:
                assert np.all(np.abs(expected) < 1e-8)


def test_squares_stand_for_the_curvature_where_the_model_is_right():
    mu, sigma2, _, s2 = posterior()
    noise, params, log_sigma = at(mu, sigma2)
    (_, _), (by_squares, error) = mean_gradient(noise, params, log_sigma, "squares", 500)
    (_, _), (_, other_error) = mean_gradient(noise, params, log_sigma, "reparametrised", 500)
    curvature_part = sigma2 * np.mean(X**2, axis=0) / S**2
    expected = curvature_part + (sigma2 / s2 - 1) / N  # 0
    assert np.all(np.abs(by_squares - expected) < 0.4 * curvature_part + 5 * error)
    assert np.all(error < 0.3 * other_error)


@pytest.mark.parametrize("at_once", [1, 3 * D, 10**6])
def test_squares_of_every_row(at_once, monkeypatch):
    """Against NumPy, whatever number of rows is done at a time."""
    monkeypatch.setattr(weight_noise, "_AT_ONCE", at_once)
    w = np.linspace(-1, 1, D)
    rows = tuple(v[:12] for v in ROWS)
    g, squares, aux = gradient_and_squares(
        lambda p, row: (squared_error(p, row)[0], row[1]), {"W": jnp.asarray(w, jnp.float32)[None]}, rows
    )
    each = -(Y - X @ w)[:12, None] * X[:12] / S**2
    np.testing.assert_allclose(g["W"][0], each.mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(squares["W"][0], (each**2).mean(axis=0), rtol=1e-4, atol=1e-6)
    assert float(aux) == pytest.approx(Y[:12].mean(), rel=1e-5)


@ways
def test_descent_finds_the_posterior(how):
    mu, sigma2, *_ = posterior()
    noise, params, log_sigma = at(np.zeros(D), np.full(D, 0.02**2))
    diagonal = jnp.asarray(N / (np.sum(X**2, axis=0) / S**2 + 1), jnp.float32)[None]

    def step(i, state):
        params, log_sigma = state
        rate = 0.03 / (1 + i / 200)
        key = jax.random.fold_in(jax.random.key(3), i)
        found = noise.gradients(squared_error, params, log_sigma, ROWS, key=key, how=how)
        params = jax.tree.map(lambda w, g: w - rate * diagonal * g, params, found.mu)
        return params, noise.descend(log_sigma, found.log_sigma, rate)

    params, log_sigma = jax.jit(lambda state: jax.lax.fori_loop(0, 6000, step, state))((params, log_sigma))
    z = (np.asarray(params["W"][0]) - mu) / np.sqrt(sigma2)
    assert np.max(np.abs(z)) < 0.25
    ratio = np.exp(2 * np.asarray(log_sigma["W"][0])) / sigma2
    assert np.all(np.abs(np.log(ratio)) < (0.2 if how == "reparametrised" else 0.35)), ratio


def test_noise_on_the_decoder_leaves_the_encoder_alone():
    model, _ = make_model("2 skip")
    whole, part = WeightNoise(model, 10), WeightNoise(model, 10, part="decoder")
    assert jax.tree.leaves(part.masks.encoder) == []
    same(part.masks.decoder, whole.masks.decoder)
    params, log_sigma = floats(model), part.start(0.3)
    drawn = part.perturbed(params, log_sigma, part.draw(log_sigma, key=jax.random.key(0)))
    same(drawn.encoder, params.encoder)
    assert part.cost(params, log_sigma) < whole.cost(params, whole.start(0.3))


def test_one_wild_gradient_moves_sigma_little():
    noise = WeightNoise({"W": jnp.ones((2, 2))}, 1000)
    new = noise.descend(noise.start(0.1), {"W": jnp.asarray([[1e9, -1e9], [0.0, 1e-6]])}, 0.01)
    moved = np.asarray(new["W"]) - math.log(0.1)
    np.testing.assert_allclose(moved, [[-0.1, 0.1], [0, -0.01 * 500 * 1e-6]], atol=1e-6)


# ---------------------------------------------------------------- in training


def test_without_noise_the_state_has_nothing_of_it():
    model = small()
    state = Program(model, BASE, len(PATTERNS)).start(model, HYPER)
    assert state.log_sigma is None
    with_noise = Program(model, replace(BASE, noise="matrix"), len(PATTERNS)).start(model, HYPER)
    assert len(jax.tree.leaves(with_noise)) > len(jax.tree.leaves(state))
    assert "noise" not in go(model, BASE).history[-1]["train"]


@pytest.mark.parametrize(("how", "prior"), [("reparametrised", "matrix"), ("squares", "pooled")])
def test_noise_trains_and_reports_its_cost(how, prior):
    config = replace(BASE, noise=prior, noise_gradient=how, noise_lr=0.01, epochs=30, average=0.9, weight_decay=1e-3)
    found = go(small(), config)
    costs = [row["train"]["noise"] for row in found.history]
    assert all(math.isfinite(row["valid"]["bound"]) for row in found.history)
    assert costs[-1] < costs[0]


def test_a_step_of_noise_is_a_function_of_state_and_batch():
    model, config = small(), replace(BASE, noise="matrix")
    program, rows = Program(model, config, len(PATTERNS)), DeviceRows.put(PATTERNS)
    step = jax.jit(program.step)
    batch = replace(take(rows, jnp.arange(10)), noise_key=jax.random.key(2))
    (one, metrics), (again, _) = (step(program.start(model, HYPER), HYPER, batch) for _ in range(2))
    same(one, again)
    start, noise = (
        program.start(model, HYPER),
        WeightNoise(model, len(PATTERNS)),
    )  # N is all the rows, not a minibatch's
    cost = float(noise.cost(start.params, start.log_sigma)) / len(PATTERNS)
    assert float(metrics["noise"]) == pytest.approx(cost, rel=1e-5)
    later, other = (step(one, HYPER, b)[0] for b in (batch, replace(batch, noise_key=jax.random.key(3))))
    assert any(np.any(v != w) for v, w in zip(*map(jax.tree.leaves, (later.params, other.params))))


def test_the_weight_of_the_cost_rises_to_one():
    """After a fraction w of the run the step is that of noise without warm-up; before, the cost counts for less."""
    model = small()
    batch = replace(take(DeviceRows.put(PATTERNS), jnp.arange(10)), noise_key=jax.random.key(2))

    programs = {
        w: Program(model, replace(BASE, noise="matrix", noise_warmup=w, epochs=10), len(PATTERNS)) for w in (0.0, 0.5)
    }
    steps = {w: jax.jit(p.step) for w, p in programs.items()}

    def moved(at: int, warmup: float):
        start = replace(programs[warmup].start(model, HYPER), step=jnp.asarray(at, jnp.int32))
        after, _ = steps[warmup](start, HYPER, batch)
        return np.concatenate([s.ravel() for s in jax.tree.leaves((after.params, after.log_sigma))])

    n = 10 * programs[0.0].steps_per_epoch
    np.testing.assert_allclose(moved(n // 2, 0.5), moved(n // 2, 0.0), atol=1e-6)
    whole, none, half = moved(n // 4, 0.0), moved(0, 0.5), moved(n // 4, 0.5)
    assert np.abs(whole - none).max() > 1e-4  # the first step leaves only what the data say
    sigmas = sum(w.size for w in jax.tree.leaves(programs[0.5].start(model, HYPER).log_sigma))
    np.testing.assert_allclose(half[-sigmas:], (whole + none)[-sigmas:] / 2, atol=1e-6)  # half-way up, half the weight


def test_validation_is_with_the_means():
    model = small()
    program = Program(model, replace(BASE, noise="matrix", noise_sigma=3.0), len(PATTERNS))
    state = program.start(model, HYPER)
    quiet = Program(model, BASE, len(PATTERNS))
    rows = DeviceRows.put(PATTERNS)
    same(*(p.bound(state, HYPER, rows, n_samples=2) for p in (program, quiet)))


def test_noise_keeps_a_model_from_learning_by_heart():
    """Thirty rows of fair coins: nothing is to be learned, and all of it can be."""
    rng = np.random.default_rng(0)
    train, valid = (Rows.from_array((rng.random((n, 12)) < 0.5).astype(np.uint8)) for n in (30, 500))
    config = replace(BASE, lr=0.003, epochs=1500, validate_every=1500, noise_lr=0.003)
    model = zoo.fvsbn(12, key=jax.random.key(0))
    plain, noisy = (fit(model, train, valid, replace(config, noise=noise)) for noise in ("none", "matrix"))
    entropy = 12 * math.log(2)
    assert plain.bound > entropy + 3
    assert noisy.bound < entropy + 1

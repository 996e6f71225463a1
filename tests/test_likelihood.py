"""Laws of the likelihood: enumeration, the bound, importance sampling, and how they stand to each other."""

import json
from functools import lru_cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from helpers import DEEP, MODELS, joint, make_model, randomised, states, table

from darn import zoo
from darn.config import Architecture
from darn.errors import DarnError, InputError
from darn.inference import weights
from darn.inference.likelihood import evaluate, exact, importance, method_for, score_parts
from darn.inference.objective import description_length
from darn.inference.summary import Running
from darn.inference.weights import settle
from darn.model import Stack

models = pytest.mark.parametrize("name", MODELS)
deep = pytest.mark.parametrize("name", DEEP)
SAMPLED = ["1 linear | c", "2", "3 skip"]  # importance sampling compiles slowly: a few models stand for all


def everything(name, mild=False):
    """All x, with the model's context for each; `mild`: with smaller weights, so that q is not far from p."""
    model, c = make_model(name)
    model = jax.tree.map(lambda w: 0.4 * w if eqx.is_inexact_array(w) else w, model) if mild else model
    x = states(model.n_x)
    return model, x, None if c is None else np.tile(c, (len(x), 1))


@lru_cache
def exactly(name):
    model, x, context = everything(name)
    return exact(model, x, context=context)


@models
def test_exact_equals_reference(name):
    model, x, context = everything(name)
    found = exactly(name)
    assert found.method == "exact"
    for i in (0, len(x) // 3, len(x) - 1):
        c = None if context is None else context[i]
        assert found.log_p[i] == pytest.approx(reference.exact(model, x[i], c), abs=5e-5)
        expected = reference.expected_description_length(model, x[i], c)
        assert found.row_bound[i] == pytest.approx(expected, abs=1e-4)


@models
def test_exact_sums_to_one(name):
    found = exactly(name)
    assert np.exp(found.log_p.astype(np.float64)).sum() == pytest.approx(1, abs=2e-5)
    np.testing.assert_allclose(np.exp(found.log_p), np.exp(table(name)[0]).sum(axis=1), rtol=1e-4)


@models
def test_bound_is_never_below_the_likelihood(name):
    model, _, _ = everything(name)
    found = exactly(name)
    gap = found.row_bound + found.log_p
    if model.n_layers:
        assert gap.min() > -2e-5
        assert gap.max() > 1e-3
    else:
        np.testing.assert_allclose(gap, 0, atol=2e-5)


@pytest.mark.parametrize("name", [name for name in DEEP if "eonade" not in name and "conv" not in name])
def test_description_length_has_the_bound_as_its_mean(name):
    model, x, context = everything(name)
    i = len(x) // 3
    c = None if context is None else jnp.asarray(context[i])
    keys = jax.random.split(jax.random.key(0), 10_000)
    dl = eqx.filter_jit(jax.vmap(lambda key: description_length(model, jnp.asarray(x[i]), c, key=key)))(keys)
    total = np.asarray(dl.total, np.float64)
    assert abs(total.mean() - exactly(name).row_bound[i]) < 4 * total.std() / len(total) ** 0.5 + 1e-5
    np.testing.assert_allclose(total, dl.x_given_h + sum(dl.h), rtol=1e-5)
    q = np.exp(table(name)[1][i])
    bits = np.split(states(sum(model.n_h)), np.cumsum(model.n_h)[:-1], axis=1)
    for active, h in zip(dl.active, bits):
        error = active.std() / len(total) ** 0.5
        assert abs(active.mean() - q @ h.sum(axis=1)) < 4 * error


def test_description_length_of_eonade_has_the_mean_over_all_orders():
    """With a key the visible layer scores one split of one order, chosen apart from the code's own bits."""
    arch = Architecture(n_h=(2,), n_d=(), visible="eonade", n_nade=(4,), n_orderings=2)
    model = randomised(zoo.build(arch, 4, key=jax.random.key(0)), 3)
    x = states(4)[6]
    expected = 0.0
    for h in reference.codes(model):
        q = reference.log_q(model, x, h)
        p = reference.eonade_all_orders(model.decoder[0].layer, x, np.array(h[0]))
        expected += np.exp(q) * (q - p - reference.log_prob(model.decoder[1].layer, h[0]))
    keys = jax.random.split(jax.random.key(1), 40_000)
    one = lambda key: description_length(model, jnp.asarray(x), key=key).total  # noqa: E731
    total = np.asarray(eqx.filter_jit(jax.vmap(one))(keys), np.float64)
    assert abs(total.mean() - expected) < 4 * total.std() / len(total) ** 0.5


@lru_cache
def sampled(name, n_samples=1000, repeats=10):
    model, x, context = everything(name, mild=True)
    return importance(model, x, context=context, n_samples=n_samples, repeats=repeats)


def expected_error(name, n_samples, repeats=10, groups=1000):
    """Of -log of a mean of n weights, a mean over all x: its bias and its noise, by NumPy from the enumerated q."""
    model, _, context = everything(name, mild=True)
    log_p, log_q = joint(model, None if context is None else context[0])
    rng = np.random.default_rng(0)
    means, variances = [], []
    for p, q in zip(log_p, log_q):
        draws = rng.choice(len(q), (groups, n_samples), p=np.exp(q) / np.exp(q).sum())
        error = -np.log(np.exp(p - q)[draws].mean(axis=1) / np.exp(p).sum())
        means.append(error.mean())
        variances.append(error.var())
    return np.mean(means), (np.mean(variances) / len(means) * (1 / repeats + 1 / groups)) ** 0.5


@pytest.mark.parametrize("name", SAMPLED)
def test_importance_converges_to_exact(name):
    model, x, context = everything(name, mild=True)
    found, truth = sampled(name), exact(model, x, context=context)
    assert found.method == "importance"
    assert (found.n_samples, found.repeats) == (1000, 10)
    assert set(found.at) == {10, 100, 1000}
    assert found.at[1000] == pytest.approx(found.nll, abs=1e-9)
    error = {s: v - truth.nll for s, v in found.at.items()}
    for s in (10, 100, 1000):  # too few samples make log p too low
        bias, noise = expected_error(name, s)
        assert abs(error[s] - bias) < 4 * noise + 1e-5
    assert abs(error[1000]) < 0.01
    assert found.nll_ci95 == pytest.approx(2 * noise, rel=1)  # of ten values, by Student's t
    np.testing.assert_allclose(found.log_p, truth.log_p, atol=0.3)
    np.testing.assert_allclose(found.row_bound, truth.row_bound, atol=0.2)
    assert abs(found.bound - truth.bound) < 0.02
    assert np.all(found.ess > 1)
    assert np.all(found.ess <= 1000 * (1 + 1e-5))


@pytest.mark.parametrize("name", SAMPLED)
def test_effective_sample_size_is_that_of_the_weights(name):
    """S (E w)^2 / E w^2 for large S, both by enumeration."""
    model, _, context = everything(name, mild=True)
    log_p, log_q = joint(model, None if context is None else context[0])
    w = np.exp(log_p - log_q)
    expected = np.exp(log_p).sum(axis=1) ** 2 / (np.exp(log_q) * w**2).sum(axis=1)
    assert np.median(sampled(name).ess / 1000 / expected) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("name", ["nade", "1 linear | c", "2 skip", "on a grid, 1"])
def test_exact_scores_do_not_depend_on_how_rows_are_grouped(name):
    model, x, context = everything(name)
    run = partial(exact, model, x[:7], context=None if context is None else context[:7])
    whole, pieces = run(rows_at_once=7), run(rows_at_once=3)
    np.testing.assert_allclose(whole.log_p, pieces.log_p, rtol=1e-5)
    np.testing.assert_allclose(whole.row_bound, pieces.row_bound, rtol=1e-5)


def test_importance_does_not_depend_on_how_rows_are_grouped():
    model, x, context = everything("1 linear | c")
    run = partial(importance, model, x[:7], context=context[:7], n_samples=50, repeats=2)
    whole, pieces = run(rows_at_once=7), run(rows_at_once=3)
    np.testing.assert_allclose(whole.log_p, pieces.log_p, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(whole.ess, pieces.ess, rtol=1e-4)
    np.testing.assert_allclose(whole.row_bound, pieces.row_bound, rtol=1e-5, atol=1e-5)


def test_importance_follows_its_seed():
    model, x, _ = everything("2", mild=True)
    run = lambda seed: importance(model, x, n_samples=1000, repeats=1, seed=seed).log_p  # noqa: E731
    np.testing.assert_array_equal(run(1), run(1))
    assert np.any(run(1) != run(2))


# ---------------------------------------------------------------- as many samples as a row needs


@pytest.mark.parametrize(("name", "variance"), [("2", 0.05), ("1 linear | c", 0.01)])
def test_the_interval_of_a_precision_covers_the_truth(name, variance):
    """Over 400 repetitions; the first model has weights whose squares vary a hundredfold, the second milder ones."""
    model, x, context = everything(name)
    R, N = 400, len(x)
    many, side = np.tile(x, (R, 1)), None if context is None else np.tile(context, (R, 1))
    numbers = np.arange(R * N, dtype=np.uint32)
    found = settle(model, many, context=side, variance=variance, seed=0, numbers=numbers, size=512)
    truth = exactly(name).log_p
    error = found.log_p.reshape(R, N).mean(axis=1) - truth.mean()
    half = np.zeros(R)
    for r in range(R):
        one = Running("importance")
        one.add(jax.tree.map(lambda v, r=r: v.reshape(R, N)[r], found))
        half[r] = one.summary().nll_ci95
    assert np.mean(np.abs(error) < half) > 0.92  # 0.95 less three standard errors
    assert half.mean() < 3 * error.std()  # and is no wider than it need be
    # What is left of the bias is less than half of what was corrected, and no more than noise.
    assert found.correction.mean() > 0.003
    assert abs(error.mean()) < found.correction.mean() / 2 + 2 * error.std() / R**0.5
    assert error.std() < 1.5 * (variance / N) ** 0.5
    # Rows with the same weights need about as many samples; those with heavier ones need more.
    w = np.exp(np.subtract(*joint(model, None if context is None else context[0])))
    q = np.exp(joint(model, None if context is None else context[0])[1])
    cv2 = (q * w**2).sum(axis=1) / (q * w).sum(axis=1) ** 2 - 1
    drawn = found.drawn.reshape(R, N).mean(axis=0)
    assert np.corrcoef(np.log(np.maximum(cv2 / variance, 64)), np.log(drawn))[0, 1] > 0.9
    assert drawn.max() > 2 * drawn.min()


def test_a_precision_is_kept_and_does_not_depend_on_how_rows_are_grouped():
    model, x, context = everything("1 linear | c")
    run = partial(importance, model, precision=0.05)
    whole, pieces = run(x, context=context), run(x, context=context, rows_at_once=3)
    assert whole.nll_ci95 < 0.05 * 1.2
    assert abs(whole.nll - exactly("1 linear | c").nll) < 2 * whole.nll_ci95
    assert (whole.repeats, whole.unsettled, whole.at) == (1, 0, {})
    assert whole.n_samples == round(whole.drawn.mean())
    for name in ("log_p", "ess", "row_bound", "drawn"):
        np.testing.assert_allclose(getattr(whole, name), getattr(pieces, name), rtol=1e-4)
    back = np.arange(len(x))[::-1].astype(np.uint32)
    turned = run(x[::-1].copy(), context=context[::-1].copy(), numbers=back)
    np.testing.assert_allclose(turned.log_p[::-1], whole.log_p, rtol=1e-4)
    alone = run(x[5:6], context=context[5:6], numbers=back[::-1][5:6], among=len(x))
    np.testing.assert_allclose(alone.log_p, whole.log_p[5:6], rtol=1e-4)
    finer = run(x, context=context, precision=0.01)
    assert finer.nll_ci95 < 0.01 * 1.2
    assert finer.drawn.mean() > 5 * whole.drawn.mean()


def test_rows_that_are_never_settled_are_counted(monkeypatch):
    monkeypatch.setattr(weights, "LIMIT", 128)
    model, x, _ = everything("2")
    found = importance(model, x, precision=0.01)
    assert found.drawn.max() == 128
    assert 0 < found.unsettled <= len(x)
    assert found.nll_ci95 > 0.01
    summary = json.loads(json.dumps(found.summary(), allow_nan=False))
    assert summary["unsettled"] == found.unsettled
    assert summary["drawn"] == {"least": int(found.drawn.min()), "most": 128}


# ---------------------------------------------------------------- q = posterior


def deaf():
    """A decoder that ignores h under a factorial prior: the posterior is the prior, and so is q."""
    arch = Architecture(n_h=(4,), n_d=(), visible="linear", prior="factorial")
    model = randomised(zoo.build(arch, 3, key=jax.random.key(0)), 1)
    zero = lambda m: (m.decoder[0].layer.U.W, m.encoder[0].layer.U.W)  # noqa: E731
    model = eqx.tree_at(zero, model, tuple(jnp.zeros_like(w) for w in zero(model)))
    return eqx.tree_at(lambda m: m.encoder[0].layer.b, model, model.decoder[1].layer.b)


def one_unit():
    """One hidden unit under a factorial visible layer: the posterior's logit is linear in x."""
    arch = Architecture(n_h=(1,), n_d=(), visible="factorial")
    model = randomised(zoo.build(arch, 4, key=jax.random.key(0)), 2)
    visible, prior = model.decoder[0].layer, model.decoder[1].layer
    U = reference.f64(visible.U.W)[:, 0]
    b = reference.f64(visible.b)
    bias = reference.f64(prior.b) + np.sum(np.logaddexp(0, b) - np.logaddexp(0, b + U))
    where = lambda m: (m.encoder[0].layer.U.W, m.encoder[0].layer.b)  # noqa: E731
    return eqx.tree_at(where, model, (jnp.asarray(U[None], jnp.float32), jnp.asarray(bias, jnp.float32)))


@pytest.mark.parametrize("build", [deaf, one_unit])
def test_the_posterior_closes_the_gap(build):
    model = build()
    x = states(model.n_x)
    truth = exact(model, x)
    np.testing.assert_allclose(truth.row_bound, -truth.log_p, atol=2e-5)
    found = importance(model, x, n_samples=40, repeats=2)
    np.testing.assert_allclose(found.log_p, truth.log_p, atol=2e-5)  # every weight is p(x)
    np.testing.assert_allclose(found.row_bound, -truth.log_p, atol=2e-5)
    np.testing.assert_allclose(found.ess, 40, rtol=1e-5)
    assert found.nll_ci95 < 1e-5
    once = importance(model, x, n_samples=40, repeats=1)
    assert 0 <= once.nll_ci95 < 1e-3


# ---------------------------------------------------------------- the rest


def test_interval_of_one_repeat_resembles_that_of_many():
    model, x, _ = everything("2", mild=True)
    once, many = importance(model, x, n_samples=1000, repeats=1), sampled("2")
    assert 0.3 < once.nll_ci95 / (many.nll_ci95 * 10**0.5) < 3


def test_one_sample_says_nothing_of_its_noise():
    model, x, _ = everything("2", mild=True)
    once = importance(model, x, n_samples=1, repeats=1)
    assert once.nll_ci95 == np.inf
    assert once.summary()["nll_ci95"] is None  # JSON has no infinity
    assert np.isfinite(importance(model, x, n_samples=1, repeats=2).nll_ci95)


@pytest.mark.parametrize("options", [{"n_samples": 0}, {"n_samples": 4, "repeats": 0}, {"precision": 0.0}])
def test_numbers_of_samples_that_cannot_be(options):
    model, x, _ = everything("2", mild=True)
    with pytest.raises(InputError, match="precision must be above 0, n_samples and repeats at least 1"):
        importance(model, x, **options)


def test_intensities_are_scored_by_a_factorial_visible_layer():
    model, _, _ = everything("1 factorial")
    x = np.random.default_rng(0).random((3, model.n_x))
    found = exact(model, x)
    for i in range(3):
        total = 0.0
        for h in reference.codes(model):
            d = reference.apply(model.decoder[0].net, np.array(h[0]))
            a = reference.f64(model.decoder[0].layer.b) + reference.apply(model.decoder[0].layer.U, d)
            p = np.sum(x[i] * a - np.logaddexp(0, a))
            total += np.exp(p + reference.log_prob(model.decoder[1].layer, h[0]))
        assert found.log_p[i] == pytest.approx(np.log(total), abs=5e-5)


def test_evaluate_enumerates_small_codes_and_samples_large_ones():
    model, x, _ = everything("2")
    assert evaluate(model, x).method == "exact"
    large = zoo.darn(3, 17, 2, key=jax.random.key(0))
    found = evaluate(large, states(3)[:2], n_samples=20, repeats=2)
    assert found.method == "importance"
    assert (found.n_samples, found.repeats) == (20, 2)


def test_codes_are_enumerated_where_that_is_the_cheaper_way():
    """A NADE works for every pair of row and code, so it gets fewer codes than a layer that is linear in the code."""

    def chosen(n_h, visible):
        arch = Architecture(n_h=(n_h,), n_d=(), visible=visible, n_nade=(50,))
        return method_for(zoo.build(arch, 20, key=jax.random.key(0)))

    assert [chosen(n, "linear") for n in (16, 17)] == ["exact", "importance"]
    assert [chosen(n, "nade") for n in (9, 16)] == ["exact", "importance"]


def test_too_many_codes_are_refused():
    model = zoo.darn(3, 31, 2, key=jax.random.key(0))
    with pytest.raises(DarnError, match=r"31 stochastic units.*importance") as e:
        exact(model, states(3))
    assert "\n" not in str(e.value)


def test_summary_is_plain():
    for found in (exactly("2"), sampled("2")):
        summary = json.loads(json.dumps(found.summary(), allow_nan=False))
        assert summary["nll"] == found.nll
        assert summary["bound"] == found.bound
        assert summary["rows"] == len(found.log_p)
    assert set(summary["nll_at"]) == {"10", "100", "1000"}
    one = exact(everything("2")[0], states(4)[:1]).summary()
    assert json.loads(json.dumps(one, allow_nan=False))["rows_ci95"] is None


def test_many_codes_are_summed_in_pieces(monkeypatch):
    """The sum over codes streams: pieces of it give what the whole gives."""
    model, x, _ = everything("3")
    monkeypatch.setattr(Stack, "row_floats", property(lambda model: 1 << 18))  # room for 64 pairs at a time
    found = exact(model, x)
    np.testing.assert_allclose(found.log_p, exactly("3").log_p, rtol=1e-5)
    np.testing.assert_allclose(found.row_bound, exactly("3").row_bound, rtol=1e-5)


HOW = {
    "exact": {"method": "exact"},
    "to a precision": {"method": "importance"},
    "with 70 samples": {"method": "importance", "n_samples": 70, "repeats": 2},
}


@pytest.mark.parametrize("size", [1e38, 3e38])
@pytest.mark.parametrize("how", HOW)
def test_weights_too_large_for_finite_scores(how, size):
    """A forged model, say: every weight is finite, but no sum of them."""
    model, x, _ = everything("1 factorial")
    wild = jax.tree.map(lambda w: np.full_like(w, size), model)
    with pytest.raises(DarnError, match="not finite"):
        list(score_parts(wild, [(x, None, np.zeros(len(x)))], len(x), **HOW[how]))

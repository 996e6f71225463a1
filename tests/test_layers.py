"""Laws of maps and layers: samples, scores and the running state speak of one distribution."""

from functools import lru_cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from helpers import (
    AUTOREGRESSIVE,
    CAUSAL_LOCAL,
    CAUSAL_MAPS,
    LAYERS,
    LOCAL,
    MAPS,
    ONE_BY_ONE,
    P_VALUE,
    chi_square,
    make_layer,
    make_map,
    number,
    states,
)
from jax import lax

from darn.layers import AbstractAutoregressive, EoNADE, Factorial, LinearAutoregressive
from darn.nn import CausalLocal, _turns, softplus
from darn.nn._products import products

N_SAMPLES = 20_000
layers = pytest.mark.parametrize("name", LAYERS)
autoregressive = pytest.mark.parametrize("name", AUTOREGRESSIVE)
factorial = pytest.mark.parametrize("name", [name for name in LAYERS if name.startswith("factorial")])


def is_autoregressive(layer):
    return hasattr(layer, "chain")


def walk(layer, y, c):
    """All logits by start, read and write."""

    def unit(state, j):
        return layer.write(state, j, y[j]), layer.read(state, j)

    return lax.scan(unit, layer.start(c), jnp.arange(layer.n))[1]


@eqx.filter_jit
def observe(layer, c, y, keys):
    """All that the laws look at, in one program: compiling is most of a test's time."""

    def score(weights, y):
        return eqx.combine(weights, static).log_prob(y, c)

    weights, static = eqx.partition(layer, eqx.is_inexact_array)
    seen = {"log_prob": jax.vmap(lambda y: layer.log_prob(y, c))(y), "one": layer.log_prob(y[-1], c)}
    seen["slope"] = jax.vmap(jax.grad(score), (None, 0))(weights, y[:: len(y) - 1])
    seen["sample"] = jax.vmap(lambda key: layer.sample(c, key=key))(keys)
    seen["most_probable"] = layer.most_probable(c)
    if is_autoregressive(layer):
        u = jax.vmap(lambda key: jax.random.uniform(key, (layer.n,)))(keys[:500])

        def chain(u):
            def decide(a, j, a_j):
                return a.at[j].set(a_j), (u[j] < jax.nn.sigmoid(a_j)).astype(a_j.dtype)

            return layer.chain(decide, jnp.zeros(layer.n), c)

        soft = jnp.concatenate([0.8 * y[:2] + 0.1, y[-2:]])
        seen["u"] = u
        seen["chain"] = jax.vmap(chain)(u)
        seen["walk along the chain"] = jax.vmap(lambda y: walk(layer, y, c))(seen["chain"][0])
        seen["walk"] = jax.vmap(lambda y: walk(layer, y, c))(y)
        seen["logits"] = jax.vmap(lambda y: layer.logits(y, c))(y)
        seen["logits of the most probable"] = layer.logits(seen["most_probable"][0], c)
        seen["jacobian"] = jax.vmap(jax.jacobian(lambda y: layer.logits(y, c)))(soft)
    return seen


@lru_cache
def look(name, grid=None, extreme=False):
    """(layer, context, what `observe` saw)."""
    layer, c = make_layer(name, grid)
    if extreme:
        where = lambda m: m.core.b if isinstance(m, EoNADE) else m.b  # noqa: E731
        b = 100 * np.sign(np.asarray(where(layer)) + 0.01)
        layer = eqx.tree_at(where, layer, jnp.asarray(b, jnp.float32))
    keys = jax.random.split(jax.random.key(7), N_SAMPLES)
    return layer, c, jax.tree.map(np.asarray, observe(layer, c, jnp.asarray(states(layer.n)), keys))


def log_probs(name):
    return look(name)[2]["log_prob"].astype(np.float64)


# ---------------------------------------------------------------- maps


@pytest.mark.parametrize("name", MAPS)
def test_map_equals_reference(name):
    m, n_in = make_map(name)
    for c in np.random.default_rng(0).normal(size=(3, n_in)).astype(np.float32):
        np.testing.assert_allclose(jax.jit(lambda c: m(c))(jnp.asarray(c)), reference.apply(m, c), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CAUSAL_MAPS)
def test_causal_map_sees_only_what_comes_before(name):
    m, n = make_map(name)
    J = np.asarray(jax.jit(jax.jacobian(m))(jnp.full(n, 0.3)))
    assert np.all(np.triu(J) == 0)
    if name in ONE_BY_ONE:
        assert np.all(J[np.tril_indices(n, -1)] != 0)
        np.testing.assert_array_equal(m.weights(), J)
    else:  # every weight that is in use, and no other
        np.testing.assert_array_equal(J, reference.causal_local_matrix(m).astype(np.float32))
        assert set(np.unique(J)) - {0} <= set(np.unique(m.weights()))


@pytest.mark.parametrize("name", CAUSAL_MAPS)
def test_causal_map_is_the_sum_of_its_outgoing_weights(name):
    m, n = make_map(name)
    y = jax.random.normal(jax.random.key(1), (n,))
    outgoing = np.asarray(jax.jit(jax.vmap(m.outgoing))(jnp.arange(n)), np.float64)
    np.testing.assert_allclose(m(y), np.asarray(y, np.float64) @ outgoing, rtol=1e-5, atol=2e-6)
    assert np.all(np.tril(outgoing) == 0)


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_causal_chain_decides_in_order_and_hands_on_its_carry(name):
    m, n = make_map(name, grid=1 / 8)
    b = np.round(8 * np.random.default_rng(3).normal(size=n)) / 8

    def decide(seen, j, a_j):
        return (seen[0].at[j].set(a_j), seen[1] + 1, seen[2] & (seen[1] == j)), (a_j > 0).astype(a_j.dtype)

    carry = (jnp.zeros(n), jnp.asarray(0), jnp.asarray(True))
    y, (a, count, in_order) = jax.jit(lambda b: m.chain(b, decide, carry))(jnp.asarray(b, jnp.float32))
    expected = np.zeros(n)
    for j in range(n):
        expected[j] = b[j] + reference.apply(m, expected)[j] > 0
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(a, b + reference.apply(m, expected))
    assert count == n
    assert in_order


@pytest.mark.parametrize("name", LOCAL)
def test_adjoint(name):
    """<L x, y> = <x, L^T y>, and the same for both with the roles of weights and input changed."""
    forward, n_in = make_map(f"local {name}")
    back, n_out = make_map(f"local transpose {name}")
    back = eqx.tree_at(lambda m: (m.of.W, m.b), back, (forward.W, None))
    forward = eqx.tree_at(lambda m: m.b, forward, None)
    rng = np.random.default_rng(5)
    x, y = (jnp.asarray(rng.normal(size=n), jnp.float32) for n in (n_in, n_out))

    @jax.jit
    def both(forward, back):
        one = jax.value_and_grad(lambda m: jnp.dot(m(x), y))(forward)
        return one, jax.value_and_grad(lambda m: jnp.dot(x, m(y)))(back)

    (one, by_forward), (other, by_back) = both(forward, back)
    assert float(one) == pytest.approx(float(other), rel=1e-4, abs=1e-4)
    np.testing.assert_allclose(by_forward.W, by_back.of.W, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axes", [(None, None), (0, None), (2, None), (None, 1), (3, 0)])
def test_products_are_plain_ones_under_vmap_and_in_gradients(axes):
    rng = np.random.default_rng(7)

    def array(shape, axis):
        return jnp.asarray(rng.normal(size=shape if axis is None else np.insert(shape, axis, 5)), jnp.float32)

    a, b = array((2, 3, 4), axes[0]), array((2, 4, 6), axes[1])
    over = jax.vmap(products, axes) if axes != (None, None) else products
    plain = jax.vmap(jnp.matmul, axes) if axes != (None, None) else jnp.matmul
    np.testing.assert_allclose(over(a, b), plain(a, b), rtol=1e-5, atol=1e-5)
    slopes = [jax.grad(lambda a, b, f=f: jnp.sum(jnp.sin(f(a, b))), (0, 1))(a, b) for f in (over, plain)]
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), *slopes)


@pytest.mark.parametrize("name", [name for name in LOCAL if "convolution" in name])
def test_period_one_is_a_convolution(name):
    m, n_in = make_map(f"local {name}")
    x = jnp.asarray(np.random.default_rng(6).normal(size=n_in), jnp.float32).reshape(1, *m.grid)
    form = ("NHWC", "HWIO", "NHWC")
    expected = lax.conv_general_dilated(x, m.W[0, 0], (m.stride,) * 2, "SAME", dimension_numbers=form)[0]
    np.testing.assert_allclose(m.product(x[0]), expected, rtol=1e-4, atol=1e-5)


def test_untied_cells_share_no_weight():
    m, n = make_map("local untied")
    one = lambda W: eqx.tree_at(lambda m: m.W, m, W)(jnp.ones(n)).reshape(-1, m.out[2])  # noqa: E731
    reached = np.any(np.asarray(jax.jit(jax.jacobian(one))(m.W)) != 0, axis=(1, 4, 5, 6, 7))
    assert m.W.shape[:2] == m.out[:2]
    assert np.all(reached.sum(axis=(1, 2)) == 1)
    assert np.all(reached.sum(axis=0) == 1)


@pytest.mark.parametrize("name", CAUSAL_LOCAL)
def test_wavefront_decides_every_unit_once_and_after_all_it_sees(name):
    m, n = make_map(f"causal local {name}", grid=1 / 8)
    sees = reference.causal_local_matrix(m) != 0
    fronts = []

    def decide(_, units, a):
        jax.debug.callback(lambda u: fronts.append([int(v) for v in u if v < n]), units, ordered=True)
        return None, (a > 0).astype(a.dtype)

    b = np.round(8 * np.random.default_rng(3).normal(size=n)) / 8
    y, _ = m.chain(jnp.asarray(b, jnp.float32), decide, None)
    jax.effects_barrier()
    assert sorted(v for front in fronts for v in front) == list(range(n))
    known = np.zeros(n, bool)
    for front in fronts:
        assert not np.any(sees[front] & ~known)
        known[front] = True
    expected = np.zeros(n)
    for j in range(n):
        expected[j] = b[j] + reference.apply(m, expected)[j] > 0
    np.testing.assert_array_equal(y, expected)


def test_wavefronts_are_few():
    """20 blocks in a row and two steps from row to row: 436 steps for a frame, not 33,231."""
    m = CausalLocal((209, 159, 1), 15, period=14)
    jaxpr = jax.make_jaxpr(lambda a: m.chain(a, lambda c, j, a: (c, a), None)[0])(jnp.zeros(m.n))
    assert [e.params["length"] for e in jaxpr.eqns if e.primitive.name == "scan"] == [436]
    assert int(jnp.sum(m._sees())) == 112


@pytest.mark.parametrize("name", [name for name in LAYERS if name.startswith("grid")])
def test_wavefront_draws_what_unit_by_unit_draws(name):
    layer, c = make_layer(name, grid=1 / 8)
    u = jax.random.uniform(jax.random.key(3), (300, layer.n))

    def draw(chain, u):
        return chain(lambda carry, j, a: (carry, (u[j] < jax.nn.sigmoid(a)).astype(a.dtype)), None, c)[0]

    fast = jax.jit(jax.vmap(lambda u: draw(layer.chain, u)))(u)
    slow = jax.jit(jax.vmap(lambda u: draw(partial(AbstractAutoregressive.chain, layer), u)))(u)
    np.testing.assert_array_equal(fast, slow)


@pytest.mark.parametrize("name", [*ONE_BY_ONE, *(f"causal local {name}" for name in list(CAUSAL_LOCAL)[::3])])
def test_a_walk_written_out_decides_what_a_loop_does(name, monkeypatch):
    """As an accelerator has it, and as a CPU."""
    m, _ = make_map(name, grid=1 / 8)
    a, u = jax.random.normal(jax.random.key(1), (m.n,)), jax.random.uniform(jax.random.key(2), (m.n + 1,))

    def draw(a):
        return m.chain(a, lambda carry, j, a: (carry + 1, (u[j] < jax.nn.sigmoid(a)).astype(a.dtype)), jnp.zeros(()))

    loop = jax.jit(lambda a: draw(a))(a)
    monkeypatch.setattr(_turns.jax, "default_backend", lambda: "gpu")
    assert _turns.unrolled()
    written_out = jax.jit(lambda a: draw(a))(a)
    assert 0 < jnp.sum(loop[0]) < m.n or m.n == 1
    jax.tree.map(np.testing.assert_array_equal, loop, written_out)


def test_softplus_is_safe_everywhere():
    a = np.linspace(-200, 200, 4001, dtype=np.float32)
    value, slope = jax.vmap(jax.value_and_grad(softplus))(jnp.asarray(a))
    np.testing.assert_allclose(value, np.logaddexp(0, a.astype(np.float64)), rtol=1e-6, atol=1e-37)
    np.testing.assert_allclose(slope, reference.sigmoid(np.clip(a.astype(np.float64), -87, 200)), rtol=2e-6, atol=1e-37)


# ---------------------------------------------------------------- layers


@layers
def test_probabilities_sum_to_one(name):
    assert np.exp(log_probs(name)).sum() == pytest.approx(1, abs=1e-5)


@layers
def test_log_prob_equals_reference(name):
    layer, c = make_layer(name)
    expected = [reference.log_prob(layer, y, c) for y in states(layer.n)]
    np.testing.assert_allclose(log_probs(name), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", [name for name in LAYERS if name.endswith("| c")])
def test_context_must_be_given(name):
    layer, _ = make_layer(name)
    with pytest.raises(ValueError, match="context"):
        layer.log_prob(jnp.asarray(states(layer.n)[0]))


@layers
def test_batches_are_rows(name):
    _, _, seen = look(name)
    assert float(seen["one"]) == pytest.approx(float(seen["log_prob"][-1]), abs=2e-5)


@pytest.mark.parametrize("name", [name for name in LAYERS if not name.endswith("| c")])
def test_many_rows_are_scored_as_few_are(name):
    """jaxlib 0.10.2 on a CPU adds up some fused products wrongly from output 32,768 on."""
    layer, c, seen = look(name)

    @eqx.filter_jit
    def score(layer, y):
        weights, static = eqx.partition(layer, eqx.is_inexact_array)
        one = lambda w, y: eqx.combine(w, static).log_prob(y, c)  # noqa: E731
        value, slope = jax.vmap(jax.value_and_grad(one), (None, 0))(weights, y)
        return value, jax.tree.leaves(slope)[0]

    y = states(layer.n)
    times = -(-33_000 // len(y))
    few, many = score(layer, jnp.asarray(y)), score(layer, jnp.asarray(np.tile(y, (times, 1))))
    np.testing.assert_allclose(few[0], seen["log_prob"], atol=2e-5)
    for a, b in zip(few, many):
        spread = np.abs(np.asarray(b).reshape(times, *a.shape) - np.asarray(a)[None])
        assert spread.max() < 1e-4


@layers
def test_samples_follow_log_prob(name):
    _, _, seen = look(name)
    y = seen["sample"]
    assert y.dtype == np.float32
    assert set(np.unique(y)) <= {0, 1}
    assert chi_square(number(y), np.exp(log_probs(name))) > P_VALUE


@autoregressive
def test_logits_ignore_their_own_and_later_units(name):
    layer, _, seen = look(name)
    J = seen["jacobian"]
    assert np.all(np.triu(J) == 0)
    if isinstance(getattr(layer, "W", None), CausalLocal):
        np.testing.assert_array_equal(np.any(J != 0, axis=0), reference.causal_local_matrix(layer.W) != 0)
    else:
        assert np.all(np.any(J != 0, axis=0)[np.tril_indices(layer.n, -1)])


@autoregressive
def test_start_read_write_equals_logits(name):
    _, _, seen = look(name)
    np.testing.assert_allclose(seen["walk"], seen["logits"], rtol=1e-4, atol=2e-5)


@autoregressive
def test_log_prob_is_the_chain_rule_over_logits(name):
    layer, _, seen = look(name)
    y, a = states(layer.n), seen["logits"].astype(np.float64)
    np.testing.assert_allclose((y * a - np.logaddexp(0, a)).sum(1), log_probs(name), rtol=2e-5, atol=2e-5)


@autoregressive
def test_chain_equals_start_read_write(name):
    """Weights on a coarse grid, so that sums are exact in any order and rounding decides no tie."""
    layer, _, seen = look(name, grid=1 / 8)
    (y, a), walked = seen["chain"], seen["walk along the chain"]
    np.testing.assert_array_equal(y, seen["u"] < reference.sigmoid(walked.astype(np.float64)))
    if isinstance(layer, LinearAutoregressive):
        np.testing.assert_array_equal(a, walked)
    else:
        np.testing.assert_allclose(a, walked, rtol=1e-5, atol=1e-5)


@autoregressive
def test_sample_is_the_chain_over_uniform_numbers(name):
    _, _, seen = look(name, grid=1 / 8)
    np.testing.assert_array_equal(seen["sample"][: len(seen["u"])], seen["chain"][0])


@layers
def test_most_probable_follows_its_own_path(name):
    layer, c, seen = look(name)
    y, q = seen["most_probable"]
    np.testing.assert_array_equal(y, q > 0.5)
    if isinstance(layer, Factorial):
        a = np.asarray(layer.logits(c))
    elif isinstance(layer, EoNADE):
        order = np.asarray(layer.orders[0])
        a = np.zeros(layer.n)
        a[order] = layer.core.given(c).reordered(order).logits(jnp.asarray(y[order]))
    else:
        a = seen["logits of the most probable"]
    np.testing.assert_allclose(q, reference.sigmoid(a.astype(np.float64)), rtol=1e-5, atol=1e-6)


@layers
def test_scores_and_slopes_are_finite_at_extreme_logits(name):
    _, _, seen = look(name, extreme=True)
    assert np.all(np.isfinite(seen["log_prob"]))
    assert seen["log_prob"].min() < -50
    assert all(np.all(np.isfinite(g)) for g in jax.tree.leaves(seen["slope"]))


@layers
def test_bias_from_mean(name):
    layer, _ = make_layer(name)
    mean = np.linspace(0.1, 0.8, layer.n, dtype=np.float32)
    b = layer.with_bias(jnp.asarray(mean))
    b = (b.core if isinstance(b, EoNADE) else b).b
    np.testing.assert_allclose(reference.sigmoid(np.asarray(b, np.float64)), mean, rtol=1e-5)


# ---------------------------------------------------------------- one kind alone


@factorial
def test_factorial_takes_intensities(name):
    layer, c = make_layer(name)
    p = reference.sigmoid(np.asarray(layer.logits(c), np.float64))
    y = np.random.default_rng(0).random(layer.n)
    expected = (y * np.log(p) + (1 - y) * np.log(1 - p)).sum()
    assert float(layer.log_prob(jnp.asarray(y, jnp.float32), c)) == pytest.approx(expected, abs=1e-5)


@factorial
def test_factorial_entropy(name):
    layer, c = make_layer(name)
    lp = log_probs(name)
    assert float(layer.entropy(c)) == pytest.approx(-(np.exp(lp) * lp).sum(), abs=1e-5)


@pytest.mark.parametrize("name", [name for name in LAYERS if name.startswith("eonade")])
def test_eonade_training_estimate_has_the_mean_over_all_orders(name):
    layer, c = make_layer(name)
    keys = jax.random.split(jax.random.key(11), 40_000)
    estimate = jax.jit(jax.vmap(lambda key, y: layer.log_prob(y, c, key=key), (0, None)))
    for i in (0, 13, 22):
        y = states(layer.n)[i]
        found = np.asarray(estimate(keys, jnp.asarray(y)), np.float64)
        expected = reference.eonade_all_orders(layer, y, c)
        assert abs(found.mean() - expected) < 4 * found.std() / len(found) ** 0.5


def test_eonade_orders_are_permutations():
    layer, _ = make_layer("eonade")
    np.testing.assert_array_equal(np.sort(layer.orders, axis=1), np.tile(np.arange(layer.n), (len(layer.orders), 1)))
    assert len(np.unique(np.asarray(layer.orders), axis=0)) > 1

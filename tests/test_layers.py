"""Laws of maps and layers: samples, scores and the running state speak of one distribution."""

import math
from dataclasses import replace
from functools import lru_cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from helpers import (
    CAUSAL_LOCAL,
    CAUSAL_MAPS,
    GROUPED,
    KINDS,
    LAYERS,
    LOCAL,
    MAPS,
    ONE_BY_ONE,
    P_VALUE,
    chi_square,
    make_layer,
    make_map,
    number,
    randomised,
    states,
)
from jax import lax
from jaxtyping import Array, Float

from darn.config import Architecture, LocalLayer
from darn.errors import DarnError
from darn.inference.filling import drawn_given
from darn.layers import NADE, AbstractBinaryLayer, _conv, bias_field, symmetries
from darn.nn import (
    ARITHMETICS,
    COMPILED,
    CausalConvolution,
    CausalLocal,
    Host,
    Local,
    _turns,
    bits,
    replaced,
    softplus,
)
from darn.nn._gated import dropout
from darn.nn._products import products
from darn.zoo import build

N_SAMPLES = 20_000
layers = pytest.mark.parametrize("name", LAYERS)
one_order = pytest.mark.parametrize("name", [name for name in LAYERS if not name.startswith(("eonade", "orders"))])
factorial = pytest.mark.parametrize("name", [name for name in LAYERS if name.startswith("factorial")])


def drawing(u):
    """A `decide` that draws with the given uniform numbers and notes every logit that it is shown."""

    def decide(carry, j, a_j):
        a, times = carry
        return (a.at[j].set(a_j), times.at[j].add(1)), (u[j] < jax.nn.sigmoid(a_j)).astype(a_j.dtype)

    return decide


@eqx.filter_jit
def observe(layer, c, y, keys):
    """All that the laws look at, in one program: compiling is most of a test's time."""

    def score(weights, y):
        return eqx.combine(weights, static).log_prob(y, c)

    weights, static = eqx.partition(layer, eqx.is_inexact_array)
    seen = {"log_prob": jax.vmap(lambda y: layer.log_prob(y, c))(y), "one": layer.log_prob(y[-1], c)}
    seen["trained"] = layer.training_log_prob(y[-1], c, key=keys[0])
    seen["slope"] = jax.vmap(jax.grad(score), (None, 0))(weights, y[:: len(y) - 1])
    seen["sample"] = jax.vmap(lambda key: layer.sample(c, key=key))(keys)
    if type(layer).draw is not AbstractBinaryLayer.draw:  # otherwise it is `sample`
        seen["drawn"] = jax.vmap(lambda key: layer.draw(c, key=key))(keys[:500])
    seen["start"], seen["most_probable"] = layer.start(c), layer.most_probable(c)
    u = seen["u"] = jax.vmap(lambda key: jax.random.uniform(key, (layer.n,)))(keys[:500])

    def in_order(k):
        start = (jnp.zeros(layer.n), jnp.zeros(layer.n, jnp.int32))
        chain = jax.vmap(lambda u: layer.chain(drawing(u), start, c, order=k))(u)
        logits = jax.vmap(lambda y: layer.logits(y, c, order=k))(jnp.concatenate([chain[0], y]))
        return chain, logits[: len(u)], logits[len(u) :]

    seen["chain"], seen["logits along the chain"], seen["logits"] = lax.map(in_order, jnp.arange(layer.n_orders))
    seen["logits of the most probable"] = layer.logits(seen["most_probable"][0], c)
    soft = jnp.concatenate([0.8 * y[:2] + 0.1, y[-2:]])
    seen["jacobian"] = jax.vmap(jax.jacobian(lambda y: layer.logits(y, c)))(soft)
    return seen


def bias_of(layer):
    """Where a layer's own biases are, or those of the layer inside it."""
    inner = getattr(layer, "core", getattr(layer, "layer", layer))
    return inner.b


@lru_cache
def look_at_all(name):
    """What `look` returns for each kind of weights: one after the other, while their program is still compiled."""
    layer, c = make_layer(name)
    coarse, _ = make_layer(name, grid=1 / 8)
    b = 100 * np.sign(np.asarray(bias_of(layer)) + 0.01)
    extreme = eqx.tree_at(bias_of, layer, jnp.asarray(b, jnp.float32))
    y, keys = jnp.asarray(states(layer.n)), jax.random.split(jax.random.key(7), N_SAMPLES)
    kinds = {"plain": layer, "coarse": coarse, "extreme": extreme}
    return {kind: (one, c, jax.tree.map(np.asarray, observe(one, c, y, keys))) for kind, one in kinds.items()}


def look(name, kind="plain"):
    """(layer, context, what `observe` saw); with plain weights, on a coarse grid or with extreme biases."""
    return look_at_all(name)[kind]


def log_probs(name):
    return look(name)[2]["log_prob"].astype(np.float64)


# ---------------------------------------------------------------- maps


@pytest.mark.parametrize("name", MAPS)
def test_map_equals_reference(name):
    m, n_in = make_map(name)
    apply = jax.jit(lambda c: m(c))
    for c in np.random.default_rng(0).normal(size=(3, n_in)).astype(np.float32):
        np.testing.assert_allclose(apply(jnp.asarray(c)), reference.apply(m, c), rtol=1e-5, atol=1e-6)


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
    whole, outgoing = jax.jit(lambda y: (m(y), jax.vmap(m.outgoing)(jnp.arange(n))))(y)
    outgoing = np.asarray(outgoing, np.float64)
    np.testing.assert_allclose(whole, np.asarray(y, np.float64) @ outgoing, rtol=1e-5, atol=2e-6)
    assert np.all(np.tril(outgoing) == 0)


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_causal_chain_decides_in_order_and_hands_on_its_carry(name):
    m, n = make_map(name, grid=1 / 8)
    b = np.round(8 * np.random.default_rng(3).normal(size=n)) / 8

    def decide(seen, j, a_j):
        return (seen[0].at[j].set(a_j), seen[1] + 1, seen[2] & (seen[1] == j)), (a_j > 0).astype(a_j.dtype)

    carry = (jnp.zeros(n), jnp.asarray(0), jnp.asarray(True))
    y, (a, count, in_order) = jax.jit(lambda b: m.walk(b, decide, carry, COMPILED))(jnp.asarray(b, jnp.float32))
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


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(("grid", "phases"), [((4, 16, 1), (2, 4)), ((16, 4, 1), (4, 2)), ((8, 8, 3), (4, 4))])
def test_mirrored_map_has_the_same_periods(grid, phases, channels):
    m = Local(grid, 3, 5, stride=2, period=4, key=jax.random.key(0))
    back = m.mirrored(channels=channels, key=jax.random.key(1))
    assert m.W.shape[:2] == back.of.W.shape[:2] == phases
    assert back(jnp.zeros(math.prod(m.out))).shape == (channels * math.prod(grid),)


@pytest.mark.parametrize("axes", [(None, None), (0, None), (2, None), (None, 1), (3, 0)])
def test_products_are_plain_ones_under_vmap_and_in_gradients(axes):
    rng = np.random.default_rng(7)

    def array(shape, axis):
        return jnp.asarray(rng.normal(size=shape if axis is None else np.insert(shape, axis, 5)), jnp.float32)

    a, b = array((2, 3, 4), axes[0]), array((2, 4, 6), axes[1])
    over = jax.vmap(products, axes) if axes != (None, None) else products
    plain = jax.vmap(jnp.matmul, axes) if axes != (None, None) else jnp.matmul

    @partial(jax.jit, static_argnums=0)
    def value_and_slopes(f, a, b):
        return f(a, b), jax.grad(lambda a, b: jnp.sum(jnp.sin(f(a, b))), (0, 1))(a, b)

    (value, slopes), (plain_value, plain_slopes) = (value_and_slopes(f, a, b) for f in (over, plain))
    np.testing.assert_allclose(value, plain_value, rtol=1e-5, atol=1e-5)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), slopes, plain_slopes)


@pytest.mark.parametrize("name", [name for name in LOCAL if "convolution" in name])
def test_period_one_is_a_convolution(name):
    m, n_in = make_map(f"local {name}")
    x = jnp.asarray(np.random.default_rng(6).normal(size=n_in), jnp.float32).reshape(1, *m.grid)
    form = ("NHWC", "HWIO", "NHWC")
    expected = lax.conv_general_dilated(x, m.W[0, 0], (m.stride,) * 2, "SAME", dimension_numbers=form)[0]
    np.testing.assert_allclose(jax.jit(lambda x: m.product(x))(x[0]), expected, rtol=1e-4, atol=1e-5)


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
    y, _ = jax.jit(lambda b: m.walk(b, decide, None, COMPILED))(jnp.asarray(b, jnp.float32))
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
    jaxpr = jax.make_jaxpr(lambda a: m.walk(a, lambda c, j, a: (c, a), None, COMPILED)[0])(jnp.zeros(m.n))
    assert [e.params["length"] for e in jaxpr.eqns if e.primitive.name == "scan"] == [436]
    assert int(jnp.sum(m._sees())) == 112


@pytest.mark.parametrize("name", [*ONE_BY_ONE, *(f"causal local {name}" for name in list(CAUSAL_LOCAL)[::3])])
def test_a_walk_written_out_decides_what_a_loop_does(name, monkeypatch):
    """As an accelerator has it, and as a CPU."""
    m, _ = make_map(name, grid=1 / 8)
    a, u = jax.random.normal(jax.random.key(1), (m.n,)), jax.random.uniform(jax.random.key(2), (m.n + 1,))

    def draw(a):
        decide = lambda carry, j, a: (carry + 1, (u[j] < jax.nn.sigmoid(a)).astype(a.dtype))  # noqa: E731
        return m.walk(a, decide, jnp.zeros(()), COMPILED)

    loop = jax.jit(lambda a: draw(a))(a)
    monkeypatch.setattr(_turns.jax, "default_backend", lambda: "gpu")
    assert _turns.unrolled()
    written_out = jax.jit(lambda a: draw(a))(a)
    assert 0 < jnp.sum(loop[0]) < m.n or m.n == 1
    jax.tree.map(np.testing.assert_array_equal, loop, written_out)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CAUSAL_MAPS)
def test_units_are_decided_by_the_sign_of_exact_sums(name):
    """Against float64, unit by unit; a causal map without a grid of its own has weights on one here."""
    m, _ = make_map(name, grid=1 / 8)
    s = np.random.default_rng(0).normal(size=(40, m.n)).astype(np.float32).round(3)
    W, decided = jax.jit(lambda s: (jax.vmap(m.outgoing, out_axes=1)(jnp.arange(m.n)), jax.vmap(m.decided)(s)))(s)
    W, y = np.asarray(W, np.float64), np.zeros((40, m.n))
    for j in range(m.n):
        y[:, j] = s[:, j] + y @ W[j] > 0
    np.testing.assert_array_equal(decided, y)


def test_softplus_is_safe_everywhere():
    a = np.linspace(-200, 200, 4001, dtype=np.float32)
    value, slope = jax.vmap(jax.value_and_grad(softplus))(jnp.asarray(a))
    np.testing.assert_allclose(value, np.logaddexp(0, a.astype(np.float64)), rtol=1e-6, atol=1e-37)
    np.testing.assert_allclose(slope, reference.sigmoid(np.clip(a.astype(np.float64), -87, 200)), rtol=2e-6, atol=1e-37)


# ---------------------------------------------------------------- layers


@pytest.mark.gpu
@layers
def test_probabilities_sum_to_one(name):
    assert np.exp(log_probs(name)).sum() == pytest.approx(1, abs=1e-5)


@layers
def test_log_prob_equals_reference(name):
    layer, c = make_layer(name)
    if type(layer).__name__ not in reference.LAYERS:
        pytest.skip(f"tests/reference.py has no {type(layer).__name__}")
    expected = np.array([reference.log_prob(layer, y, c) for y in states(layer.n)])
    possible = np.isfinite(expected)
    np.testing.assert_allclose(log_probs(name)[possible], expected[possible], rtol=2e-5, atol=2e-5)
    assert np.all(log_probs(name)[~possible] < -1000)


@pytest.mark.parametrize("name", [name for name in LAYERS if name.endswith("| c")])
def test_context_must_be_given(name):
    layer, _ = make_layer(name)
    with pytest.raises(ValueError, match="context"):
        jax.eval_shape(layer.log_prob, jnp.asarray(states(layer.n)[0]))


@layers
def test_batches_are_rows(name):
    _, _, seen = look(name)
    assert float(seen["one"]) == pytest.approx(float(seen["log_prob"][-1]), rel=1e-6, abs=2e-5)


@pytest.mark.parametrize("name", KINDS)
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
    many = [
        np.asarray(v).reshape(times, len(y), *v.shape[1:]) for v in score(layer, jnp.asarray(np.tile(y, (times, 1))))
    ]
    np.testing.assert_allclose(many[0][0], seen["log_prob"], rtol=1e-5, atol=2e-5)
    possible = seen["log_prob"] > -1000  # of one-hot groups: others are sums of terms of 10,000
    for value in many:
        assert np.abs(value - value[:1])[:, possible].max() < 1e-4


@pytest.mark.gpu
@layers
def test_samples_follow_log_prob(name):
    _, _, seen = look(name)
    y = seen["sample"]
    assert y.dtype == np.float32
    assert set(np.unique(y)) <= {0, 1}
    assert chi_square(number(y), np.exp(log_probs(name))) > P_VALUE


@one_order
def test_logits_ignore_their_own_and_later_units(name):
    layer, _, seen = look(name)
    J = seen["jacobian"]
    assert np.all(np.triu(J) == 0)
    sees = np.any(J != 0, axis=0)
    if layer.independent:
        assert not sees.any()
    elif isinstance(getattr(layer, "W", None), CausalLocal):
        np.testing.assert_array_equal(sees, reference.causal_local_matrix(layer.W) != 0)
    elif name not in GROUPED:  # there what is settled depends on nothing any more
        assert np.all(sees[np.tril_indices(layer.n, -1)])


@pytest.mark.gpu
@layers
def test_log_prob_is_the_chain_rule_over_logits(name):
    layer, _, seen = look(name)
    y, each = states(layer.n), np.asarray(seen["logits"], np.float64)
    by_order = (y * each - np.logaddexp(0, each)).sum(-1)
    np.testing.assert_allclose(
        np.logaddexp.reduce(by_order) - np.log(layer.n_orders), log_probs(name), rtol=2e-5, atol=2e-5
    )


@layers
def test_chain_shows_every_unit_once_with_the_logits_of_its_own_path(name):
    """Weights on a coarse grid, so that sums are exact in any order and rounding decides no tie."""
    _, _, seen = look(name, "coarse")
    y, (a, times) = seen["chain"]  # of every order
    assert np.all(times == 1)
    np.testing.assert_allclose(a, seen["logits along the chain"], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(y, seen["u"] < reference.sigmoid(np.clip(a, -80, 80).astype(np.float64)))


@one_order
def test_on_the_host_a_walk_decides_the_same(name):
    """All rows at once, in NumPy, in parts of a few rows; the units in order."""
    layer, _, seen = look(name, "coarse")
    n_rows = 11
    u, (y, (a, _)) = seen["u"][:n_rows].T, jax.tree.map(lambda v: v[0], seen["chain"])
    state = jax.tree.map(lambda v: np.repeat(v[..., None], n_rows, axis=-1), seen["start"])
    logits = np.full((layer.n, n_rows), np.nan, np.float32)

    def decide(decided, units, a):
        np.testing.assert_array_equal(np.ravel(units), np.arange(decided, decided + np.size(units)))
        logits[units] = a
        return decided + np.size(units), (u[units] < reference.sigmoid(np.clip(a, -80, 80).astype(np.float64))).astype(
            a.dtype
        )

    walked, decided = layer.walk(state, decide, 0, Host(4))
    assert decided == layer.n
    np.testing.assert_array_equal(walked.T, y[:n_rows])
    np.testing.assert_allclose(logits.T, a[:n_rows], rtol=1e-5, atol=1e-5)


@one_order
def test_sample_is_the_chain_over_uniform_numbers(name):
    _, _, seen = look(name, "coarse")
    np.testing.assert_array_equal(seen["sample"][: len(seen["u"])], seen["chain"][0][0])  # in the only order


@pytest.mark.gpu
@layers
def test_drawn_is_what_is_sampled(name):
    """At the same keys, but for uniform numbers within rounding of a probability."""
    _, _, seen = look(name)
    drawn = seen.get("drawn", seen["sample"][:500])
    assert np.mean(np.any(drawn != seen["sample"][:500], axis=1)) <= 1 / 500


@layers
def test_most_probable_follows_its_own_path(name):
    _, _, seen = look(name)
    y, q = seen["most_probable"]
    np.testing.assert_array_equal(y, q > 0.5)
    a = seen["logits of the most probable"].astype(np.float64)
    np.testing.assert_allclose(q, reference.sigmoid(np.clip(a, -80, 80)), rtol=1e-5, atol=1e-6)


@layers
def test_what_is_seen_is_worth_the_same_whatever_is_drawn_where_a_layer_separates(name):
    layer, c = make_layer(name)
    x = jnp.asarray(look(name)[2]["sample"][0])
    rng = np.random.default_rng(0)
    masks = [np.arange(layer.n) >= k for k in range(layer.n + 1)] + [rng.random(layer.n) < 0.4 for _ in range(5)]

    @jax.jit
    def worths(missing, keys):
        drawn = jax.vmap(lambda missing: jax.vmap(lambda key: drawn_given(layer, c, x, missing, key))(keys))(missing)
        return *drawn, jax.vmap(lambda missing: layer.log_prob_of(x, ~missing, c))(missing)

    separated = 0
    found = worths(jnp.asarray(np.array(masks)), jax.random.split(jax.random.key(1), 50))
    for missing, y, log_w, at_once in zip(masks, *map(np.asarray, found)):
        np.testing.assert_array_equal(y[:, ~missing], np.tile(np.asarray(x)[~missing], (50, 1)))
        if layer.separates(missing[None]):
            separated += 1
            assert np.ptp(log_w) < 1e-4
            np.testing.assert_allclose(at_once, log_w[0], atol=1e-3)
    assert separated or layer.n_orders > 1


NO_TWIN = ("mixture", "one-hot mixture")


@pytest.mark.gpu
@layers
def test_the_integer_twin_is_the_layer_but_for_rounding(name):
    layer, c = make_layer(name)
    given = None if c is None else np.asarray(c) > 0
    inputs, arithmetic = bits(0 if c is None else len(c)), ARITHMETICS[1]

    def logits(layer, dtype):
        c = None if given is None else jax.device_put(given.astype(dtype))
        y = states(layer.n)[:: max(2**layer.n // 20, 1)].astype(dtype)
        return np.asarray(jax.jit(jax.vmap(lambda y: layer.logits(y, c)))(y))

    if name.removesuffix(" | c").split(",")[0] in NO_TWIN:
        with pytest.raises(DarnError, match="no integer twin"):
            layer.quantised(inputs, arithmetic)
        return
    expected = logits(layer, np.float32)
    with jax.enable_x64(True):
        twin = layer.quantised(inputs, arithmetic)
        assert type(twin) is type(layer)
        found = logits(twin, np.float64)
    np.testing.assert_allclose(found, expected, atol=5e-3)
    np.testing.assert_array_equal(found * 2.0**40, np.rint(found * 2.0**40))


@layers
def test_linear_layers_say_their_weights(name):
    layer, c = make_layer(name)
    if not name.startswith(("factorial", "linear", "grid")) or "local context" in name:
        if c is not None:
            with pytest.raises(DarnError):
                layer.linear()
        return
    b, U, W = layer.linear()
    assert (W is None) == layer.independent
    y, logits = states(layer.n), look(name)[2]["logits"][0]
    a = b + (0 if U is None else U @ np.asarray(c)) + (0 if W is None else y @ W.T)
    np.testing.assert_allclose(np.broadcast_to(a, logits.shape), logits, rtol=1e-5, atol=1e-5)


UNCOUNTED = ("mixture", "one-hot mixture", "conv", "orders", "urn")


@layers
def test_work_grows_with_the_units_that_are_on(name):
    layer, c = make_layer(name)
    c = None if c is None else np.asarray(c)
    if name.startswith(UNCOUNTED) or "local context | c" in name:
        with pytest.raises(DarnError, match="cannot be counted"):
            layer.work(np.zeros(layer.n, np.uint8), c)
        return
    off, on = (layer.work(np.full(layer.n, v, np.uint8), c) for v in (0, 1))
    assert off.multiplied == on.multiplied
    assert (on.added > off.added) == (
        not layer.independent and layer.n > 1 and not name.startswith(("one-hot factorial", "words factorial"))
    )


@layers
def test_the_training_estimate_is_the_score_itself_or_said_to_be_an_estimate(name):
    layer, _, seen = look(name)
    if not layer.trains_by_estimate:
        assert float(seen["trained"]) == pytest.approx(float(seen["one"]), rel=1e-5)


@layers
def test_scores_and_slopes_are_finite_at_extreme_logits(name):
    _, _, seen = look(name, "extreme")
    assert np.all(np.isfinite(seen["log_prob"]))
    assert seen["log_prob"].min() < -50
    assert all(np.all(np.isfinite(g)) for g in jax.tree.leaves(seen["slope"]))


@layers
def test_bias_from_mean(name):
    layer, _ = make_layer(name)
    if name in GROUPED:  # a group's units share what is left: test_groups.py
        return
    mean = np.linspace(0.1, 0.8, layer.n, dtype=np.float32)
    b = bias_of(layer.with_bias(jnp.asarray(mean)))
    np.testing.assert_allclose(reference.sigmoid(np.asarray(b, np.float64)), mean, rtol=1e-5)


# ---------------------------------------------------------------- one kind alone


@factorial
def test_factorial_takes_intensities(name):
    layer, c = make_layer(name)
    p = reference.sigmoid(np.asarray(layer.start(c), np.float64))
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
    estimate = jax.jit(jax.vmap(lambda key, y: layer.training_log_prob(y, c, key=key), (0, None)))
    for i in (0, 13, 22):
        y = states(layer.n)[i]
        found = np.asarray(estimate(keys, jnp.asarray(y)), np.float64)
        expected = reference.eonade_all_orders(layer, y, c)
        assert abs(found.mean() - expected) < 4 * found.std() / len(found) ** 0.5


def test_dropout_of_eonade_is_for_training_alone():
    plain, _ = make_layer("eonade, deep | c")
    layer, (y, c) = replaced(plain, rate=0.5), (jnp.asarray(states(5)[11]), make_layer("eonade, deep | c")[1])
    keys = jax.random.split(jax.random.key(0), 400)
    each = lambda m: jax.vmap(lambda k: (m.training_log_prob(y, c, key=k), m.validation_log_prob(y, c, key=k)))  # noqa: E731
    (kept, same), (dropped, validated) = jax.jit(each(plain))(keys), jax.jit(each(layer))(keys)
    np.testing.assert_array_equal(kept, same)
    np.testing.assert_allclose(validated, kept, rtol=1e-5)
    assert np.mean(np.abs(dropped - kept) > 1e-3) > 0.8
    np.testing.assert_array_equal(layer.log_prob(y, c), plain.log_prob(y, c))


def test_eonade_orders_are_permutations():
    layer, _ = make_layer("eonade")
    np.testing.assert_array_equal(np.sort(layer.orders, axis=1), np.tile(np.arange(layer.n), (len(layer.orders), 1)))
    assert len(np.unique(np.asarray(layer.orders), axis=0)) > 1


# ---------------------------------------------------------------- convolutions and orders


ORDERS = [name for name in LAYERS if name.startswith("orders")]


@pytest.mark.parametrize(
    ("grid", "count"), [((3, 3, 1), 8), ((2, 2, 2), 8), ((2, 3, 1), 4), ((1, 4, 2), 2), ((4, 1, 1), 2), ((1, 1, 3), 1)]
)
def test_symmetries_are_distinct_orders_that_keep_cells_together(grid, count):
    rows, columns, channels = grid
    places = symmetries(grid)
    assert len(np.unique(places, axis=0)) == len(places) == count
    np.testing.assert_array_equal(places[0], np.arange(rows * columns * channels))
    where = np.stack(np.divmod(np.arange(rows * columns), columns), axis=1)
    apart = np.abs(where[:, None] - where[None]).sum(axis=-1)
    for order in places:
        cells = order.reshape(-1, channels)
        np.testing.assert_array_equal(cells, cells[:, :1] + np.arange(channels))
        cells = cells[:, 0] // channels
        np.testing.assert_array_equal(np.sort(cells), np.arange(rows * columns))
        np.testing.assert_array_equal(apart[cells][:, cells], apart)  # neighbours stay neighbours


@pytest.mark.parametrize("name", ORDERS)
def test_orders_are_trained_and_validated_by_the_mean_over_orders(name):
    layer, c, seen = look(name)
    keys = jax.random.split(jax.random.key(3), 4000)
    y, each = states(layer.n), np.asarray(seen["logits"], np.float64)
    mean = (y * each - np.logaddexp(0, each)).sum(-1).mean(axis=0)
    for i in (1, len(y) // 2):
        for score in (layer.training_log_prob, layer.validation_log_prob):
            found = np.asarray(jax.jit(jax.vmap(lambda k, f=score, i=i: f(jnp.asarray(y[i]), c, key=k)))(keys))
            assert len(np.unique(np.round(found, 3))) <= layer.n_orders
            assert abs(found.mean() - mean[i]) < 4 * found.std() / len(found) ** 0.5 + 1e-4


@pytest.mark.parametrize("name", ORDERS)
def test_every_order_has_gates_of_its_own(name):
    layer, c = make_layer(name)
    y = jnp.asarray(states(layer.n)[1])
    total = lambda g, k: jnp.sum(eqx.tree_at(lambda m: m.core.gates, layer, g).logits(y, c, order=k))  # noqa: E731
    slope = jax.jit(jax.grad(total))
    for k in range(layer.n_orders):
        reached = np.any(np.asarray(slope(layer.core.gates, k)) != 0, axis=(1, 2, 3))
        np.testing.assert_array_equal(reached, np.arange(layer.n_orders) == k)


def test_dropout_is_for_training_alone():
    plain, _ = make_layer("conv")
    layer = replaced(plain, rate=0.5)
    y, keys = jnp.asarray(states(9)[300]), jax.random.split(jax.random.key(0), 50)
    trained = jax.jit(jax.vmap(lambda k: layer.training_log_prob(y, key=k)))(keys)
    assert len(np.unique(trained)) == 50
    assert layer.trains_by_estimate
    assert not plain.trains_by_estimate
    assert float(layer.validation_log_prob(y, key=keys[0])) == pytest.approx(float(plain.log_prob(y)), rel=1e-5)
    assert float(layer.log_prob(y)) == float(plain.log_prob(y))


@pytest.mark.parametrize("rate", [0.3, 0.5])
def test_dropout_keeps_the_mean(rate):
    dropped = np.asarray(dropout(jnp.ones((100, 101)), rate, jax.random.key(1)))
    assert abs((dropped == 0).mean() - rate) < 0.02
    np.testing.assert_allclose(np.unique(dropped), [0, 1 / (1 - rate)], rtol=0.005)
    assert abs(dropped.mean() - 1) < 0.03


@pytest.mark.parametrize(
    ("rate", "rounded"), [(0.0, 0), (0.001, 0), (0.002, 1 / 256), (0.998, 255 / 256), (0.9999, 255 / 256)]
)
def test_dropout_rounds_rates_near_0_and_1(rate, rounded):
    dropped = np.asarray(dropout(jnp.ones((300, 1001)), rate, jax.random.key(1)))
    assert abs((dropped == 0).mean() - rounded) < 0.0005
    assert set(np.unique(dropped)) <= {0, np.float32(1 / (1 - rounded))}


def test_on_an_accelerator_convolutions_train_in_bfloat16(monkeypatch):
    layer, c = make_layer("conv | c")
    y, key = jnp.asarray(states(9)[77]), jax.random.key(0)

    def both():
        weights, static = eqx.partition(layer, eqx.is_inexact_array)
        loss = lambda w: eqx.combine(w, static).training_log_prob(y, c, key=key)  # noqa: E731
        return jax.jit(jax.value_and_grad(loss))(weights)

    exact, slope = both()
    monkeypatch.setattr(_conv.jax, "default_backend", lambda: "gpu")
    quick, quick_slope = both()
    assert float(exact) != float(quick)
    assert float(quick) == pytest.approx(float(exact), rel=0.05)
    assert float(layer.log_prob(y, c)) == pytest.approx(float(exact), rel=1e-5)  # scores are in full
    for a, b in zip(jax.tree.leaves(slope), jax.tree.leaves(quick_slope)):
        assert b.dtype == jnp.float32
        assert np.linalg.norm(a - b) < 0.2 * np.linalg.norm(a) + 1e-3


@pytest.mark.parametrize("dilation", [1, 2, 3, 8])
@pytest.mark.parametrize(("kernel", "left"), [((2, 5), False), ((3, 3), False), ((1, 3), True)])
def test_a_dilated_convolution_is_that_of_the_library(kernel, left, dilation, getkey):
    ours = CausalConvolution(kernel, 2, 3, left=left, dilation=dilation, key=getkey())
    x = jax.random.normal(getkey(), (7, 11, 2))
    padding = ((ours.above, 0), (ours.before, ours.after))

    def library(f, x):
        sizes = {"rhs_dilation": (dilation, dilation), "dimension_numbers": ("NHWC", "HWIO", "NHWC")}
        return jax.lax.conv_general_dilated(x[None], f.W, (1, 1), padding, **sizes)[0]

    def both(convolution):
        loss = lambda f, x: jnp.sum(jnp.sin(convolution(f, x)))  # noqa: E731
        return jax.tree.leaves((convolution(ours, x), jax.jit(jax.grad(loss, argnums=(0, 1)))(ours, x)))

    for a, b in zip(both(lambda f, x: f(x)), both(library), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_blocks_computed_again_have_the_same_gradient():
    layer, c = make_layer("conv | c")
    layer = replaced(layer, rate=0.25)
    y, key = jnp.asarray(states(9)[77]), jax.random.key(0)
    weights, static = eqx.partition(layer, eqx.is_inexact_array)

    def slope(again):
        loss = lambda w: replaced(eqx.combine(w, static), again=again).training_log_prob(y, c, key=key)  # noqa: E731
        return jax.jit(jax.value_and_grad(loss)).lower(weights)

    kept, again = slope(False), slope(True)
    assert len(str(again.as_text())) > len(str(kept.as_text()))
    for a, b in zip(jax.tree.leaves(kept.compile()(weights)), jax.tree.leaves(again.compile()(weights)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_pixel_may_have_several_bits(getkey):
    arch = Architecture(n_h=(), n_d=(), visible="conv", conv_channels=2, conv_blocks=1, conv_places=True)
    model = build(arch, 8, shape=(2, 2), key=getkey())
    assert model.decoder[0].layer.grid == (2, 2, 2)
    log_p = jax.jit(jax.vmap(lambda x: model.log_p(x, ())))(states(8))
    assert float(jnp.sum(jnp.exp(log_p))) == pytest.approx(1, abs=1e-5)
    coded = build(replace(arch, n_h=(2,), local=(LocalLayer(2, 2, 2),)), 8, shape=(2, 2), key=getkey())
    assert np.isfinite(float(coded.log_p(jnp.asarray(states(8)[3]), (jnp.ones(2),))))
    with pytest.raises(DarnError, match="multiple of the 2 bits"):
        build(replace(arch, n_h=(2,), conv_channels=3), 8, shape=(2, 2), key=getkey())


def test_a_walk_computes_every_row_and_every_cell_once():
    """So drawing an image costs about one pass over it: no convolution over rows is inside the loop over cells."""
    layer, c = make_layer("conv, dilated, the same context in every cell | c")
    rows, columns, _ = layer.grid
    jaxpr = jax.make_jaxpr(lambda s: layer.walk(s, lambda c, j, a: (c, a), None)[0])(layer.start(c))

    def scans(jaxpr):
        return [e for e in jaxpr.eqns if e.primitive.name == "scan"]

    (outer,) = scans(jaxpr.jaxpr)
    (inner,) = scans(outer.params["jaxpr"].jaxpr)
    assert (outer.params["length"], inner.params["length"]) == (rows, columns)
    assert "conv_general_dilated" in str(outer.params["jaxpr"])
    assert "conv_general_dilated" not in str(inner.params["jaxpr"])
    assert "conv_general_dilated" not in {e.primitive.name for e in jaxpr.eqns}


@pytest.mark.parametrize(("masked", "n_hidden"), [(False, (6,)), (True, (6, 3))])
def test_nade_unit_by_unit_is_nade_in_blocks(masked, n_hidden, getkey):
    """A CPU computes one way and a GPU the other: values and derivatives are the same."""
    layer = NADE(40, 2, n_hidden=n_hidden, masked=masked, key=getkey())  # two blocks, the second one padded
    layer = eqx.tree_at(lambda m: m.R, layer, 20 * layer.R)
    y, c = jax.random.bernoulli(getkey(), 0.5, (40,)).astype(jnp.float32), jnp.asarray([0.5, -1.0])
    ways = {
        "stepwise": lambda m: m.start(c)[1] + m.stepwise(m.start(c)[0], y),
        "blockwise": lambda m: m.start(c)[1] + m.blockwise(m.start(c)[0], y),
        "logits": lambda m: m.logits(y, c),
    }

    @eqx.filter_jit
    def both(layer, way):
        return ways[way](layer), eqx.filter_grad(lambda m: jnp.sum(ways[way](m) ** 2))(layer)

    values, slopes = zip(*(both(layer, way) for way in ways))
    for a, slope in zip(values[1:], slopes[1:]):
        np.testing.assert_allclose(a, values[0], rtol=1e-5, atol=1e-5)
        for v, w in zip(jax.tree.leaves(slope), jax.tree.leaves(slopes[0])):
            np.testing.assert_allclose(v, w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
def test_a_nade_is_scored_by_factors_as_unit_by_unit(activation):
    """Also where a factor would be infinite or 0, in some samples of some rows; and its gradient is the same."""
    n, hidden, rows, samples = 5, 6, 3, 4
    k_layer, k_y, k_c = jax.random.split(jax.random.key(0), 3)
    layer = randomised(NADE(n, 2, n_hidden=(hidden,), activation=activation, masked=True, key=k_layer), 0)
    y = jax.random.bernoulli(k_y, 0.5, (rows, n)).astype(jnp.float32)
    c = jax.random.normal(k_c, (rows, samples, 2))

    def near(layer, y, c):
        return layer.start(c)[1] + layer.stepwise(layer.start(c)[0], y)

    # Hidden units whose context is outweighed by their bias, which alone is beyond every float's exponential.
    A = jnp.zeros_like(layer.A.W).at[:, 0].set(jnp.array([300.0, -300, 90, -90, 1, 0]))
    e = jnp.array([-300.0, 300, -90, 90, 0, -500])
    far = eqx.tree_at(lambda m: (m.A.W, m.e), layer, (A, e))
    over = [eqx.filter_jit(jax.vmap(jax.vmap(f, (None, None, 0)), (None, 0, 0))) for f in (NADE.logits, near)]
    for own, given in ((layer, c), (far, c.at[1, 2].set(1.0))):
        found, expected = (f(own, y, given) for f in over)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    slopes = [jax.grad(lambda m, f=f: f(m, y[0], c[0, 0]).sum())(layer) for f in (NADE.logits, near)]
    jax.tree.map(np.testing.assert_array_equal, *slopes)


class Plain(AbstractBinaryLayer):
    """Units without biases, each given how many are on before it."""

    w: Float[Array, " n"]
    n: int = eqx.field(static=True)

    def logits(self, y, c=None, *, order=0):
        return self.w * (1 + jnp.cumsum(y) - y)

    def start(self, c=None, *, order=0):
        return jnp.ones(())

    def read(self, state, j):
        return self.w[j] * state

    def write(self, state, j, y_j):
        return state + y_j


class Offset(Plain):
    """The same with biases under another name."""

    offset: Float[Array, " n"] = bias_field()

    def logits(self, y, c=None, *, order=0):
        return self.offset + super().logits(y)


def test_a_layer_starts_from_the_mean_by_the_field_that_it_marks():
    mean = jnp.asarray([0.2, 0.5, 0.9])
    plain, offset = Plain(jnp.zeros(3), 3), Offset(jnp.zeros(3), 3, jnp.zeros(3))
    assert plain.with_bias(mean) is plain  # it has none
    np.testing.assert_allclose(jax.nn.sigmoid(offset.with_bias(mean).offset), mean, rtol=1e-6)
    np.testing.assert_array_equal(offset.shifted(mean).offset, mean)

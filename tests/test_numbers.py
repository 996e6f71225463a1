"""Laws of numbers in tables: log p is a density of the values, and numbers follow from numbers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from helpers import randomised

from darn.config import Architecture
from darn.data import Columns, infer, load
from darn.inference import likelihood, sampling
from darn.layers import LinearAutoregressive, Numbers
from darn.nn import Host
from darn.runs.recipe import Recipe
from darn.runs.start import new_model
from darn.zoo import build

NAMES = ["kind", "x", "y"]


def table(rows=300):
    """A category and two columns of whole numbers, of which the second has gaps and missing values."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(3, 33, rows), rng.choice([0, 0, 7, *range(40, 70)], rows)
    kind = rng.choice(["a", "b"], rows)
    return np.array([[k, str(a), str(b) if b != 41 else ""] for k, a, b in zip(kind, x, y)], object)


def model_of(schema, seed=None, mean=None, **fields):
    arch = Architecture(**({"n_h": (), "n_d": (), "visible": "linear"} | fields))
    options = {"groups": schema.groups, "numbers": schema.numbers, "factors": 2, "mean": mean}
    model = build(arch, sum(schema.sizes), **options, key=jax.random.key(0))
    return model if seed is None else randomised(model, seed, scale=0.5)


def test_the_density_of_a_row_sums_to_one():
    """Over all values of a table of whole numbers, far into the tails, with any weights."""
    schema = infer(NAMES, table(), None, "it")
    cells = [[k, str(x), y] for k in "ab" for x in range(-5, 160) for y in ["", *map(str, range(-5, 330))]]
    rows = schema.encode(NAMES, np.array(cells, object), "it")
    for fields in ({}, {"n_h": (2,), "n_d": (3,), "visible": "nade", "n_nade": (4,)}):
        log_p = likelihood.exact(model_of(schema, 1, **fields), rows.bits).log_p + rows.log_density
        assert abs(np.exp(log_p.astype(np.float64)).sum() - 1) < 1e-3


def test_numbers_follow_from_numbers():
    """A precise number of mean z is near the cell of z, of some 130; without weights, in any cell."""
    rng = np.random.default_rng(1)
    cells = np.array([[f"{v:.6f}" for v in row] for row in rng.normal(size=(600, 2))], object)
    schema = infer(["x", "y"], cells, None, "it")
    model = model_of(schema, mean=schema.encode(["x", "y"], cells, "it").bits.mean(axis=0))
    where = lambda m: (m.decoder[0].layer.layer.W.W, m.decoder[0].layer.layer.log_k)  # noqa: E731
    sure = eqx.tree_at(where, model, (jnp.array([[0.0, 0.0], [1.0, 0.0]]), jnp.array([0.0, 4.0])))
    ends = np.cumsum(schema.sizes)[:-1]

    def drawn(m):
        return [c.from_bits(b) for c, b in zip(schema.columns, np.split(sampling.sample(m, 2000).x, ends, 1))]

    x, y = drawn(sure)
    assert np.mean(np.abs(x - y) <= 6) > 0.95
    assert np.bincount(x // 8)[:-1].min() > 50  # all cells are about as likely as in the training rows
    assert abs(np.corrcoef(*drawn(model))[0, 1]) < 0.1


def test_cells_have_factors_where_there_are_rows_to_learn_them(tmp_path):
    for rows in (300, 3000):
        path = tmp_path / f"{rows}.csv"
        path.write_text("\n".join(["kind,x,y", *map(",".join, table(rows))]))
        splits = load(path, columns=Columns(categorical="auto", seed=0))
        numbers = new_model(Recipe().replace(n_h=(), n_d=()), splits).decoder[0].layer.layer
        assert (numbers.A is None) == (numbers.B is None) == (rows == 300)


def test_a_unit_may_follow_from_any_cells_of_a_number():
    """Which linear weights of its bits cannot say; in samples as in scores, and not where the number is missing."""
    rng = np.random.default_rng(2)
    words = [["" if i % 5 == 0 else str(v), "ny"[i % 2]] for i, v in enumerate(rng.integers(0, 40, 900))]
    schema = infer(["x", "y"], np.array(words, object), None, "it")
    model = model_of(schema)
    where = lambda m: (m.decoder[0].layer.layer.A, m.decoder[0].layer.layer.B)  # noqa: E731
    special, (A, B) = np.array([3, 4, 9, 21, 30]), where(model)
    A, B = A.at[0, special, 0].set(1.0), jnp.zeros_like(B).at[:, 0].set(9.0)
    model = eqx.tree_at(where, model, (A, B))
    x, y = np.array(schema.decode(sampling.sample(model, 4000).x)).T
    value = schema.columns[0].find(x)
    odd = np.isin(value, special) & (x != "")
    assert np.mean(y[odd] == "y") > 0.99
    assert abs(np.mean(y[~odd] == "y") - 0.5) < 0.05
    assert (x == "").any()
    both = [schema.encode(["x", "y"], np.array([[t, v] for t in x[:50]], object), "it").bits for v in "ny"]
    n, p = (likelihood.exact(model, bits).log_p for bits in both)
    np.testing.assert_allclose((p - n), np.where(odd[:50], 9.0, 0.0), atol=1e-4)


def test_many_other_units_before_a_number_leave_it_alone():
    """On the host, which refuses an index that the compiled walk would clip."""
    n, edges = 40, ((-3000, -1100, 300, 2500, 2600, 2700, 2800, 2900, 3000),)
    layer = Numbers(LinearAutoregressive(n, key=jax.random.key(0)), ((37, 3, -1),), edges, key=jax.random.key(1))
    y = np.zeros(n, np.float32)
    y[[30, 31, 38]] = 1

    def decide(logits, units, a):
        logits[units] = a[:, None] if np.ndim(units) else a
        return logits, np.broadcast_to(y[units], np.shape(a)) if np.ndim(units) == 0 else y[units][:, None]

    start = jax.tree.map(lambda v: np.asarray(v)[..., None], layer.start())
    walked, logits = layer.walk(start, decide, np.full((n, 1), np.nan, np.float32), Host(4))
    np.testing.assert_array_equal(walked[:, 0], y)
    np.testing.assert_allclose(logits[:, 0], layer.logits(jnp.asarray(y)), rtol=1e-5, atol=1e-5)

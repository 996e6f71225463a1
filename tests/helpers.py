"""The lists that the laws run over, and a few small tools. A new class inherits every law by a line here.

Weights are random everywhere: at their initial zeros, most mistakes cannot be seen.
"""

import itertools
import zlib
from functools import lru_cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from darn.config import Architecture, LocalLayer, Window
from darn.layers import (
    NADE,
    CausalConv,
    EoNADE,
    Factorial,
    Groups,
    LinearAutoregressive,
    Mixture,
    Numbers,
    Orders,
    symmetries,
)
from darn.nn import CausalDense, CausalLocal, Dense, Local, LocalTranspose, Net, ReLU, Sigmoid, Tanh, replaced
from darn.zoo import build

P_VALUE = 1e-4  # of the chi-square tests; all are seeded, so what passes once passes always


# ---------------------------------------------------------------- tools


def seed_of(name: str) -> int:
    """An instance's own, whatever else is in its list."""
    return zlib.crc32(name.encode()) >> 1


def blank(make):
    """What make() makes, with zeros for weights: drawing them would compile a program or more for every shape."""
    shapes = eqx.filter_eval_shape(make)
    arrays = [leaf for leaf in jax.tree.leaves(shapes) if hasattr(leaf, "dtype")]
    if not all(np.issubdtype(leaf.dtype, np.floating) for leaf in arrays):
        return eqx.filter_jit(make)()  # an EoNADE's orders are drawn, too
    zeros = lambda leaf: np.zeros(leaf.shape, leaf.dtype) if hasattr(leaf, "dtype") else leaf  # noqa: E731
    return jax.device_put(jax.tree.map(zeros, shapes))  # `jnp.asarray` would compile a program for every shape


# `build` as one program, instead of several for every new shape.
fresh = jax.jit(build, static_argnums=(0, 1), static_argnames=("n_context", "shape", "groups"))


def randomised(module, seed, scale=0.9, grid=None):
    """The module with random weights; `grid`: as multiples of it, so that sums over 0/1 inputs are exact."""
    rng = np.random.default_rng(seed)  # NumPy's, since JAX would compile a program for every shape

    def draw(w):
        if not eqx.is_inexact_array(w):
            return w
        new = scale * rng.normal(size=w.shape)
        return jax.device_put((new if grid is None else np.round(new / grid) * grid).astype(np.float32))

    return jax.tree.map(draw, module)


def with_block(layer, block):
    return eqx.tree_at(lambda v: v.W, layer, CausalDense(layer.n, block=block))


@lru_cache
def states(n):
    """Every vector of n bits, (2^n, n), the first bit the slowest."""
    return np.array(list(itertools.product((0, 1), repeat=n)), np.float32).reshape(2**n, n)


def number(bits):
    """The row of `states` that each row of bits is."""
    bits = np.asarray(bits)
    return bits.astype(np.int64) @ (1 << np.arange(bits.shape[-1] - 1, -1, -1))


def chi_square(found, p, least=5.0):
    """The p-value of cell numbers `found` under the cell probabilities `p`, rare cells put together."""
    p = np.asarray(p, np.float64).ravel()
    assert abs(p.sum() - 1) < 1e-4
    counts = np.bincount(found, minlength=p.size)
    assert counts.size == p.size
    expected = p / p.sum() * len(found)
    order = np.argsort(expected)
    group = np.zeros(p.size, int)
    total, current = 0.0, 0
    for i in order:
        group[i] = current
        total += expected[i]
        if total >= least:
            total, current = 0.0, current + 1
    if total:  # the remainder joins the last whole cell
        group[group == current] = max(current - 1, 0)
    e, c = np.bincount(group, expected), np.bincount(group, counts)
    assert e.size > 1, "one cell only: there is nothing to test"
    return stats.chisquare(c, e).pvalue


def same(a, b):
    """Two pytrees are the same: structure, types and every bit."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for v, w in zip(jax.tree.leaves(a), jax.tree.leaves(b)):
        assert np.asarray(v).dtype == np.asarray(w).dtype
        np.testing.assert_array_equal(np.asarray(v), np.asarray(w))


# ---------------------------------------------------------------- maps: (builder, n_in)

# name: (grid, kernel, filters, stride, period, tile)
LOCAL = {
    "convolution": ((7, 5, 2), 3, 3, 1, 1, 1),
    "convolution, stride 2": ((6, 7, 1), 4, 2, 2, 1, 2),
    "period 2": ((7, 5, 1), 3, 2, 1, 2, 1),
    "period 2, tile 2": ((7, 5, 2), 3, 2, 1, 2, 2),
    "period 4, tile 2, stride 2": ((9, 11, 1), 4, 2, 2, 4, 2),
    "untied": ((5, 4, 1), 3, 2, 1, 9, 9),
    "untied, tile 1": ((5, 4, 1), 3, 1, 1, 5, 1),
    "kernel 1": ((3, 4, 2), 1, 2, 1, 2, 1),
    "stride beyond the kernel": ((7, 8, 1), 2, 2, 3, 2, 2),
    "kernel beyond the grid": ((3, 2, 1), 7, 1, 1, 2, 2),
    "one cell": ((1, 1, 2), 3, 2, 2, 3, 1),
}

# name: (grid, kernel, period, tile, block)
CAUSAL_LOCAL = {
    "convolution": ((4, 5, 1), 3, 1, 1, 1),
    "period 2": ((5, 3, 1), 3, 2, 2, 1),
    "period 2, tile 1, channels": ((3, 4, 2), 3, 2, 1, 1),
    "period 3, kernel 5": ((5, 7, 1), 5, 3, 3, 2),
    "untied": ((4, 3, 1), 3, 9, 9, 2),
    "kernel 1": ((2, 3, 3), 1, 2, 1, 2),
    "kernel beyond the grid": ((3, 2, 2), 9, 2, 2, 8),
    "one row": ((1, 7, 1), 5, 2, 2, 3),
    "one column": ((6, 1, 1), 3, 4, 2, 8),
    "one unit": ((1, 1, 1), 3, 2, 1, 8),
    "blocks beyond the window": ((4, 11, 1), 3, 4, 4, 3),
}


def _local(grid, kernel, filters, stride, period, tile, key):
    return Local(grid, kernel, filters, stride=stride, period=period, tile=tile, key=key)


def _n_out(*options):
    return int(np.prod(blank(partial(_local, *options, jax.random.key(0))).out))


def _transpose(grid, kernel, filters, stride, period, tile, key):
    return LocalTranspose(_local(grid, kernel, filters, stride, period, tile, key), key=key)


def _causal_local(grid, kernel, period, tile, block, key=None):
    return CausalLocal(grid, kernel, period=period, tile=tile, block=block)


def _over_grid(n_c, key, *options):
    W = _causal_local(*options)
    return LinearAutoregressive(W.n, n_c, W=W, key=key)


def _under_grid(n_c, key):
    """A grid whose context is a grid too: n_c = 3 units make a row of three cells."""
    W = CausalLocal((2, 3, 1), 3, period=2)
    U = LocalTranspose(Local((2, 3, 1), 2, 3, stride=3, period=1, key=key), bias=False, key=key) if n_c else None
    return LinearAutoregressive(W.n, U=U, W=W)


def _conv(n_c, key, grid, **options):
    return CausalConv(grid, n_c, channels=4, key=key, **({"n_blocks": 1, "first": (2, 5, 3), "width": 3} | options))


def _turned(n_c, key, grid, **options):
    places = symmetries(grid)
    return Orders(_conv(n_c, key, grid, n_told=len(places), **options), places)


MAPS = {
    "dense": (lambda key: Dense(4, 6, key=key), 4),
    "dense without bias": (lambda key: Dense(4, 3, bias=False, key=key), 4),
    "tanh": (lambda key: Tanh(), 5),
    "relu": (lambda key: ReLU(), 5),
    "sigmoid": (lambda key: Sigmoid(), 5),
    "net tanh": (lambda key: Net.dense(4, (5, 3), "tanh", key=key), 4),
    "net relu": (lambda key: Net.dense(4, (5,), "relu", key=key), 4),
    "empty net": (lambda key: Net.dense(4, (), key=key), 4),
    "causal": (lambda key: CausalDense(7), 7),
    "causal, ragged blocks": (lambda key: CausalDense(8, block=3), 8),
    "causal, whole blocks": (lambda key: CausalDense(8, block=4), 8),
    "causal, one unit": (lambda key: CausalDense(1), 1),
    **{f"local {name}": (partial(_local, *v), int(np.prod(v[0]))) for name, v in LOCAL.items()},
    **{f"local transpose {name}": (partial(_transpose, *v), _n_out(*v)) for name, v in LOCAL.items()},
    **{f"causal local {name}": (partial(_causal_local, *v), int(np.prod(v[0]))) for name, v in CAUSAL_LOCAL.items()},
}
CAUSAL_MAPS = [name for name in MAPS if name.startswith("causal")]
ONE_BY_ONE = [name for name in CAUSAL_MAPS if not name.startswith("causal local")]  # decide units one at a time


@lru_cache
def make_map(name, grid=None):
    build_map, n_in = MAPS[name]
    return randomised(blank(lambda: build_map(jax.random.key(0))), seed_of(name), grid=grid), n_in


# ---------------------------------------------------------------- layers, each with and without context

N_C = 3
_LAYERS = {
    "factorial": lambda n_c, key: Factorial(6, n_c, key=key),
    "linear": lambda n_c, key: LinearAutoregressive(7, n_c, key=key),
    "linear, ragged blocks": lambda n_c, key: with_block(LinearAutoregressive(8, n_c, key=key), 3),
    "linear, whole blocks": lambda n_c, key: with_block(LinearAutoregressive(6, n_c, key=key), 2),
    "linear, one unit": lambda n_c, key: LinearAutoregressive(1, n_c, key=key),
    "grid": lambda n_c, key: _over_grid(n_c, key, (3, 3, 1), 3, 2, 2, 1),
    "grid, odd, kernel 5": lambda n_c, key: _over_grid(n_c, key, (2, 5, 1), 5, 3, 1, 2),
    "grid, channels": lambda n_c, key: _over_grid(n_c, key, (2, 2, 2), 3, 2, 2, 1),
    "grid, convolution": lambda n_c, key: _over_grid(n_c, key, (4, 2, 1), 3, 1, 1, 8),
    "grid, local context": lambda n_c, key: _under_grid(n_c, key),
    "factorial, local context": lambda n_c, key: (
        Factorial(8, U=Local((1, 3, 1), 3, 4, stride=2, period=2, bias=False, key=key)) if n_c else Factorial(8)
    ),
    "nade": lambda n_c, key: NADE(6, n_c, n_hidden=(5,), key=key),
    "nade, ragged blocks": lambda n_c, key: replaced(NADE(7, n_c, n_hidden=(4,), key=key), block=3),
    "nade, deep and masked": lambda n_c, key: NADE(5, n_c, n_hidden=(4, 3), activation="tanh", masked=True, key=key),
    "eonade": lambda n_c, key: EoNADE(5, n_c, n_hidden=(4,), n_orderings=3, key=key),
    "eonade, as it was": lambda n_c, key: replaced(EoNADE(5, n_c, n_hidden=(4,), n_orderings=2, key=key), signed=False),
    "eonade, deep": lambda n_c, key: EoNADE(5, n_c, n_hidden=(4, 3), n_orderings=4, activation="sigmoid", key=key),
    "mixture": lambda n_c, key: Mixture(6, n_c, n_components=3, key=key),
    "conv": lambda n_c, key: _conv(n_c, key, (3, 3, 1), n_blocks=2),
    "conv, channels": lambda n_c, key: _conv(n_c, key, (2, 2, 2)),
    "conv, dilated, the same context in every cell": lambda n_c, key: _conv(
        n_c, key, (2, 4, 1), n_blocks=2, dilations=(1, 2), width=5, U=Dense(n_c, 4, key=key) if n_c else None
    ),
    "orders of conv": lambda n_c, key: _turned(n_c, key, (2, 3, 1), places=True),
}


def _numbers(layer, n_c, factors=2):
    """The two words of WORDS as numbers, of six cells and of five that may be missing."""
    edges = (-3000, -1100, -500, 100, 1300, 1400, 2500), (-2800, -900, 300, 700, 1500, 2900)
    return Numbers(layer, ((0, 3, -1), (5, 3, 4)), edges, n_c, factors=factors, key=jax.random.key(3))


GROUPS = (3, 1, 2, 2)
WORDS = ((5, False), 1, (4, True))  # 0..5 in three bits, a free bit, nothing or 0..4 in one and three
_LAYERS |= {
    "one-hot factorial": lambda n_c, key: Groups(Factorial(8, n_c, key=key), GROUPS),
    "one-hot linear": lambda n_c, key: Groups(with_block(LinearAutoregressive(8, n_c, key=key), 3), GROUPS),
    "one-hot nade": lambda n_c, key: Groups(NADE(8, n_c, n_hidden=(4,), key=key), GROUPS),
    "one-hot mixture": lambda n_c, key: Groups(Mixture(8, n_c, n_components=3, key=key), GROUPS),
    "one-hot grid": lambda n_c, key: Groups(_over_grid(n_c, key, (2, 4, 1), 3, 2, 2, 1), GROUPS),
    "words factorial": lambda n_c, key: Groups(Factorial(8, n_c, key=key), WORDS),
    "words linear": lambda n_c, key: Groups(with_block(LinearAutoregressive(8, n_c, key=key), 3), WORDS),
    "words of numbers, without factors": lambda n_c, key: Groups(
        _numbers(with_block(LinearAutoregressive(8, n_c, key=key), 3), n_c, factors=0), WORDS
    ),
    "words of numbers, nade": lambda n_c, key: Groups(_numbers(NADE(8, n_c, n_hidden=(4,), key=key), n_c), WORDS),
    "words of numbers": lambda n_c, key: Groups(
        _numbers(with_block(LinearAutoregressive(8, n_c, key=key), 3), n_c), WORDS
    ),
    "words and one-hot nade": lambda n_c, key: Groups(NADE(9, n_c, n_hidden=(4,), key=key), ((2, True), 3, (6, False))),
}
# Some only with a context, since without one they take as long and show nothing new: variants of a layer, named after a
# comma, and layers around another one, which is the only one to see the context.
AROUND = ("orders of conv", "one-hot linear", "one-hot nade", "one-hot mixture", "one-hot grid", "words linear")
AROUND += ("words and one-hot nade",)
_WITHOUT = [name for name in _LAYERS if "," not in name and name not in AROUND]
LAYERS = {name: partial(_LAYERS[name], 0) for name in _WITHOUT}
LAYERS |= {f"{name} | c": partial(f, N_C) for name, f in _LAYERS.items()}
KINDS = [name if name in LAYERS else f"{name} | c" for name in _LAYERS if "," not in name]  # each of them once
GROUPED = [name for name in LAYERS if name.startswith(("one-hot", "words"))]  # over valid rows alone


@lru_cache
def make_layer(name, grid=None):
    """(layer, a context or None), the same ones for the same name."""
    seed = seed_of(name)
    # Weights of a deep net are smaller, or its rounding errors would grow from block to block.
    scale = 0.4 if "conv" in name.split(",")[0] else 0.9
    layer = randomised(blank(lambda: LAYERS[name](key=jax.random.key(seed))), seed, scale=scale, grid=grid)
    c = np.round(4 * np.random.default_rng(seed).normal(size=N_C)) / 4 if "| c" in name else None
    return layer, None if c is None else jnp.asarray(c, jnp.float32)


# ---------------------------------------------------------------- models


def _arch(n_h=(), **fields):
    small = {"n_d": (3,), "n_nade": (4,), "n_orderings": 3, "n_components": 3}
    return Architecture(n_h=n_h, **(small | fields))


# name: (architecture, n_x, n_context)
MODELS = {
    "factorial": (_arch(visible="factorial"), 4, 0),
    "fvsbn": (_arch(visible="linear"), 6, 0),
    "nade": (_arch(visible="nade", n_nade=(4, 3)), 6, 0),
    "eonade": (_arch(visible="eonade"), 5, 0),
    "mixture": (_arch(visible="mixture"), 5, 0),
    "fvsbn | c": (_arch(visible="linear", n_d=()), 5, 2),
    "1 factorial": (_arch((4,), visible="factorial"), 5, 0),
    "1 linear, linear encoder": (_arch((4,), visible="linear", encoder="linear"), 5, 0),
    "1 linear | c": (_arch((3,), visible="linear"), 4, 2),
    "1 nade, nade encoder": (_arch((3,), visible="nade", encoder="nade", prior="nade"), 4, 0),
    "1 eonade": (_arch((3,), visible="eonade", prior="eonade"), 4, 0),
    "1 mixture": (_arch((3,), visible="mixture", prior="mixture", activation="relu"), 4, 0),
    "1 fdarn": (_arch((4,), encoder_d=(3, 2), decoder_d=(), visible="factorial"), 5, 0),
    "2": (_arch((3, 2), visible="linear"), 4, 0),
    "2 skip": (_arch((3, 2), visible="linear", skip=True), 4, 0),
    "2 skip, linear encoder | c": (
        _arch((3, 2), visible="factorial", encoder="linear", skip=True, n_d=()),
        4,
        2,
    ),
    "3": (_arch((2, 3, 2), visible="factorial"), 3, 0),
    "3 skip": (_arch((2, 3, 2), visible="linear", skip=True), 3, 0),
}
# Named so that they sort last: a model's weights follow from its place in the order of names.
_LOCAL = {"visible": "grid", "n_d": (), "activation": "relu", "period": 2, "ar": Window(3, 2), "ar_h": Window(3, 2)}
SHAPES = {
    "on a grid, fvsbn": (2, 3),
    "on a grid, 1": (2, 3),
    "on a grid, 1, dense between": (3, 2),
    "on a grid, 2": (2, 3),
    "on a grid, conv": (2, 2),
    "on a grid, conv, 1": (2, 3),
}
MODELS |= {
    "on a grid, fvsbn": (_arch(**_LOCAL), 6, 0),
    "on a grid, 1": (_arch((3,), local=(LocalLayer(2, 2, 2), LocalLayer(2, 1, 1)), **_LOCAL), 6, 0),
    "on a grid, 1, dense between": (
        _arch(
            (2,), local=(LocalLayer(3, 2, 2),), **(_LOCAL | {"n_d": (3,), "visible": "factorial", "activation": "tanh"})
        ),
        6,
        0,
    ),
    "on a grid, 2": (_arch((2,), local_h=(LocalLayer(3, 2, 2),), **_LOCAL), 6, 0),
}
_CONV = _LOCAL | {"visible": "conv", "conv_channels": 3, "conv_blocks": 1}
MODELS |= {
    "on a grid, conv": (_arch(**_CONV), 4, 0),
    "on a grid, conv, 1": (
        _arch((2,), local=(LocalLayer(3, 1, 2), LocalLayer(2, 2, 2)), orders="symmetries", dropout=0.25, **_CONV),
        6,
        0,
    ),
}
DEEP = [name for name in MODELS if MODELS[name][0].n_h]


@lru_cache
def make_model(name):
    """(model, context or None)."""
    arch, n_x, n_context = MODELS[name]
    seed = seed_of(name)
    make = lambda: build(arch, n_x, n_context=n_context, shape=SHAPES.get(name), key=jax.random.key(seed))  # noqa: E731
    model = randomised(blank(make), seed, scale=0.4 if "conv" in name else 0.8)
    c = np.random.default_rng(seed).normal(size=n_context).astype(np.float32) if n_context else None
    return model, c


def split_code(model, codes):
    return tuple(np.split(codes, np.cumsum(model.n_h)[:-1], axis=-1)) if model.n_h else ()


@eqx.filter_jit
def _joint(model, context, x, codes):
    def pair(x, code):
        h = tuple(jnp.split(code, np.cumsum(model.n_h)[:-1])) if model.n_h else ()
        return model.log_p(x, h, context), model.log_q(x, h, context)

    return jax.vmap(jax.vmap(pair, (None, 0)), (0, None))(x, codes)


def joint(model, c):
    """log p(x,h) and log q(h|x) as (2^n_x, 2^n_h) arrays over all states."""
    found = _joint(model, c, jnp.asarray(states(model.n_x)), jnp.asarray(states(sum(model.n_h))))
    return tuple(np.asarray(v, np.float64) for v in found)


@lru_cache
def table(name):
    """`joint` of a model of the list."""
    return joint(*make_model(name))

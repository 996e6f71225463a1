"""Builders: each returns a `Stack` with fresh weights."""

import itertools
import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from darn.config import Architecture
from darn.errors import DarnError
from darn.layers import (
    NADE,
    AbstractBinaryLayer,
    CausalConv,
    EoNADE,
    Factorial,
    LinearAutoregressive,
    Mixture,
    OneHot,
    Orders,
    symmetries,
)
from darn.model import Conditional, Stack
from darn.nn import ACTIVATIONS, AbstractMap, CausalLocal, Dense, Grid, Local, LocalTranspose, Net


def _layer(kind: str, n: int, n_c: int, arch: Architecture, key: PRNGKeyArray) -> AbstractBinaryLayer:
    if kind == "factorial":
        return Factorial(n, n_c, key=key)
    if kind == "linear":
        return LinearAutoregressive(n, n_c, key=key)
    if kind == "nade":
        return NADE(n, n_c, n_hidden=arch.n_nade, key=key)
    if kind == "eonade":
        return EoNADE(n, n_c, n_hidden=arch.n_nade, n_orderings=arch.n_orderings, key=key)
    if kind == "mixture":
        return Mixture(n, n_c, n_components=arch.n_components, key=key)
    raise ValueError(f"no layer is called {kind!r}")


def build(
    arch: Architecture,
    n_x: int,
    *,
    n_context: int = 0,
    mean=None,
    shape: tuple[int, int] | None = None,
    rarest: float = 1e-3,
    groups: Sequence[int] | None = None,
    key: PRNGKeyArray,
) -> Stack:
    """The stack that `arch` describes over n_x visible units.

    `mean`: the training rows' mean, from which the visible biases start, never nearer to 0 or 1 than `rarest`. `shape`:
    of the images that the rows are, for an architecture with local layers. `groups`: sizes of adjacent groups of
    visible units of which exactly one is on (`OneHot`).
    """
    if groups is not None and arch.visible == "eonade":
        raise DarnError("--visible eonade has no order to settle groups in: choose linear, nade or factorial")
    make = _local_stack if arch.is_local else _stack
    model = make(arch, n_x, n_context, shape, key)
    if groups is not None:
        visible = lambda m: m.decoder[0].layer  # noqa: E731
        model = eqx.tree_at(visible, model, OneHot(visible(model), groups))
    if mean is None:
        return model
    # Constant columns would put the bias at infinity.
    mean = jnp.clip(jnp.asarray(mean, jnp.float32), rarest, 1 - rarest)
    return eqx.tree_at(lambda m: m.decoder[0].layer, model, model.decoder[0].layer.with_bias(mean))


def _stack(arch: Architecture, n_x: int, n_context: int, shape, key: PRNGKeyArray) -> Stack:
    """Fully connected. A net stands wherever a conditional has parents: a prior without context has none."""
    sizes = (n_x, *arch.n_h)
    L = len(arch.n_h)
    keys = iter(jax.random.split(key, 2 * (2 * L + 1)))

    def conditional(kind, n, parents, widths):
        n_c = sum(parents) + n_context
        net = Net.dense(n_c, widths, arch.activation, key=next(keys)) if widths and n_c else None
        return Conditional(_layer(kind, n, widths[-1] if net else n_c, arch, next(keys)), net)

    down = arch.n_d if arch.decoder_d is None else arch.decoder_d
    up = arch.n_d if arch.encoder_d is None else arch.encoder_d
    decoder, encoder = [], []
    for l in range(L + 1):
        kind = arch.visible if l == 0 else arch.prior
        decoder.append(conditional(kind, sizes[l], sizes[l + 1 :] if arch.skip else sizes[l + 1 : l + 2], down))
    for k in range(L):
        encoder.append(conditional(arch.encoder, sizes[k + 1], sizes[: k + 1] if arch.skip else [sizes[k]], up))
    return Stack(tuple(decoder), tuple(encoder), arch.skip, n_context)


def _triples(sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    return [(sizes[i], sizes[i + 1], sizes[i + 2]) for i in range(0, len(sizes), 3)]


def _local_stack(arch: Architecture, n_x: int, n_context: int, shape, key: PRNGKeyArray) -> Stack:
    """Over images: local layers from x upwards, then fully connected ones; the decoder is the encoder's mirror.

    Between two stochastic layers stand maps with a nonlinearity after each but the last, which is the layer's own U.
    """
    if shape is None or shape[0] * shape[1] != n_x:
        raise DarnError("local layers are for images, but these rows have no rows and columns: leave out --local, ...")
    if n_context:
        raise DarnError("local layers take no context: leave out --labels")
    keys = (jax.random.fold_in(key, i) for i in itertools.count())
    act = ACTIVATIONS[arch.activation]

    def local(grid, kernel, stride, filters):
        return Local(grid, kernel, filters, stride=stride, period=arch.period, key=next(keys))

    def mirror(m, *, bias):
        if isinstance(m, Local):
            return LocalTranspose(m, bias=bias, key=next(keys))
        return Dense(m.W.shape[0], m.W.shape[1], bias=bias, key=next(keys))

    def net(maps):
        return Net(tuple(f for m in maps for f in (m, act()))) if maps else None

    grid: Grid = (*shape, 1)
    maps = []  # from the last stochastic layer upwards
    for options in _triples(arch.local):
        maps.append(local(grid, *options))
        grid = maps[-1].out
    lower = CausalLocal((*shape, 1), arch.ar[0], period=arch.ar[1]) if arch.visible == "grid" else None
    size = n_x  # of that stochastic layer, `lower` its autoregression, None for independent units
    kind = arch.visible
    decoder, encoder = [], []
    for options in (*_triples(arch.local_h), *arch.n_h):
        if isinstance(options, tuple):
            maps.append(local(grid, *options))
            grid = maps[-1].out
            n, W = math.prod(grid), CausalLocal(grid, arch.ar_h[0], period=arch.ar_h[1])
        else:
            widths = [math.prod(grid), *arch.n_d, options]
            maps += [Dense(a, b, key=next(keys)) for a, b in itertools.pairwise(widths)]
            grid, n, W = (1, 1, options), options, None
        if kind == "conv":
            U = _to_channels(maps[0], arch, shape, next(keys))
            layer = _conv(arch, shape, U, next(keys))
            down = [mirror(m, bias=True) for m in maps[1:]][::-1]
        else:
            *down, U = [mirror(m, bias=k > 0) for k, m in enumerate(maps)][::-1]
            layer = _over(kind, size, lower, U)
        decoder.append(Conditional(layer, net(down)))
        last = eqx.tree_at(lambda m: m.b, maps[-1], None)  # the layer has a bias of its own
        encoder.append(Conditional(Factorial(n, U=last), net(maps[:-1])))
        size, lower, kind, maps = n, W, "grid" if W is not None else arch.prior, []
    if kind in ("grid", "factorial", "linear"):
        top = _over(kind, size, lower, None)
    elif kind == "conv":
        top = _conv(arch, shape, None, next(keys))
    else:
        top = _layer(kind, size, 0, arch, next(keys))
    return Stack((*decoder, Conditional(top)), tuple(encoder))


def _over(kind: str, n: int, W: CausalLocal | None, U: AbstractMap | None) -> AbstractBinaryLayer:
    """A layer with the given maps."""
    if kind == "factorial":
        return Factorial(n, U=U)
    if kind in ("grid", "linear"):
        return LinearAutoregressive(n, U=U, W=W)
    raise DarnError(f"below another layer of a local stack a layer is linear or factorial, not {kind}")


def _conv(arch: Architecture, shape: tuple[int, int], U: AbstractMap | None, key: PRNGKeyArray) -> AbstractBinaryLayer:
    """Causal convolutions over images, in one order or in all symmetries of the image."""
    grid = (*shape, 1)
    places = symmetries(grid)[: None if arch.orders == "symmetries" else 1]
    core = CausalConv(
        grid,
        channels=arch.conv_channels,
        n_blocks=arch.conv_blocks,
        dropout=arch.dropout,
        n_told=len(places),
        U=U,
        key=key,
    )
    return core if arch.orders == "one" else Orders(core, places)


def _to_channels(m: AbstractMap, arch: Architecture, shape: tuple[int, int], key: PRNGKeyArray) -> AbstractMap:
    """The mirror of a map from an image, to `conv_channels` numbers a pixel in place of one."""
    C = arch.conv_channels
    if isinstance(m, Local):
        k_of, key = jax.random.split(key)
        _, _, kernel, _, _, filters = m.W.shape
        wide = Local((*shape, C), kernel, filters, stride=m.stride, period=arch.period, bias=False, key=k_of)
        return LocalTranspose(wide, bias=False, key=key)
    assert isinstance(m, Dense)
    return Dense(m.W.shape[0], m.W.shape[1] * C, bias=False, key=key)


def fvsbn(n_x: int, *, key: PRNGKeyArray, **options) -> Stack:
    """Fully visible sigmoid belief network: a linear autoregressive visible layer and nothing above it."""
    return build(Architecture(n_h=(), visible="linear"), n_x, key=key, **options)


def nade(n_x: int, n_hidden: int = 500, *, key: PRNGKeyArray, **options) -> Stack:
    """NADE with one hidden layer."""
    return build(Architecture(n_h=(), visible="nade", n_nade=(n_hidden,)), n_x, key=key, **options)


def eonade(n_x: int, n_hidden=(500,), n_orderings: int = 16, *, key: PRNGKeyArray, **options) -> Stack:
    """EoNADE with one or more hidden layers."""
    arch = Architecture(n_h=(), visible="eonade", n_nade=tuple(n_hidden), n_orderings=n_orderings)
    return build(arch, n_x, key=key, **options)


def mixture(n_x: int, n_components: int = 10, *, key: PRNGKeyArray, **options) -> Stack:
    """Mixture of Bernoullis."""
    return build(Architecture(n_h=(), visible="mixture", n_components=n_components), n_x, key=key, **options)


def darn(
    n_x: int, n_h: int = 500, n_d: int = 500, visible: str = "factorial", *, key: PRNGKeyArray, **options
) -> Stack:
    """The paper's DARN: one stochastic layer, one tanh layer in the encoder and one in the decoder."""
    return build(Architecture(n_h=(n_h,), n_d=(n_d,), visible=visible), n_x, key=key, **options)


def deep_darn(n_x: int, n_h=(80,) * 12, n_d: int = 400, *, key: PRNGKeyArray, **options) -> Stack:
    """The paper's deep DARN: many stochastic layers, each seeing all the ones on its side."""
    arch = Architecture(n_h=tuple(n_h), n_d=(n_d,), visible="factorial", skip=True)
    return build(arch, n_x, key=key, **options)


def fdarn(n_x: int, n_h: int = 400, n_d: int = 500, *, key: PRNGKeyArray, **options) -> Stack:
    """fDARN: no deterministic layer in the decoder, so that a sparse code makes sampling cheap."""
    arch = Architecture(n_h=(n_h,), encoder_d=(n_d,), decoder_d=(), visible="factorial")
    return build(arch, n_x, key=key, **options)


def local_darn(shape: tuple[int, int], n_h: int = 300, *, filters: int = 32, key: PRNGKeyArray, **options) -> Stack:
    """The paper's Atari network, section 5.3: two local ReLU layers, n_h units, local autoregression of x."""
    local = (8, 4, filters, 4, 2, filters)
    arch = Architecture(n_h=(n_h,), n_d=(), activation="relu", visible="grid", local=local)
    return build(arch, shape[0] * shape[1], shape=shape, key=key, **options)

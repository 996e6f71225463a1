"""Builders: each returns a `Stack` with fresh weights."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from darn.config import Architecture, LocalLayer, check_values
from darn.errors import DarnError, InputError
from darn.layers import (
    AbstractBinaryLayer,
    CausalConv,
    Factorial,
    Group,
    Groups,
    LinearAutoregressive,
    Numbers,
    Orders,
    Word,
    symmetries,
)
from darn.model import Conditional, Stack
from darn.nn import ACTIVATIONS, REGISTRY, AbstractMap, CausalLocal, Dense, Grid, Local, Net


def layer_names() -> tuple[str, ...]:
    """The layer names that an `Architecture` may use: this package's and those registered elsewhere."""
    return tuple(k for k, c in REGISTRY.items() if issubclass(c, AbstractBinaryLayer) and c.by_name)


def _layer(kind: str, n: int, n_c: int, arch: Architecture, key: PRNGKeyArray) -> AbstractBinaryLayer:
    """A layer over n units given n_c context units, by its registered name."""
    layer: Any = REGISTRY[kind]
    return layer.make(n, n_c, vars(arch), key=key)


def build(
    arch: Architecture,
    n_x: int,
    *,
    n_context: int = 0,
    mean=None,
    shape: tuple[int, int] | None = None,
    rarest: float = 1e-3,
    groups: Sequence[Group] | None = None,
    numbers: Sequence[tuple[Word, tuple[int, ...]]] = (),
    factors: int = 0,
    key: PRNGKeyArray,
) -> Stack:
    """The stack that `arch` describes, with fresh weights.

    Args:
        arch: The shape of the stack.
        n_x: Visible units.
        n_context: Observed units that every conditional is given.
        mean: The training rows' mean, where the visible biases start.
        shape: Rows and columns of the images that the rows are, for an architecture with local layers; a pixel has as
            many bits as it takes to fill a row.
        rarest: The visible biases start no nearer to 0 or 1 than this.
        groups: Adjacent groups of visible units that spell one value each, as `Groups` takes them.
        numbers: The words among these groups that are numbers, each with its edges, as `Numbers` takes them.
        factors: Of each cell of a number, as `Numbers` takes them.
        key: Of the weights.

    Returns:
        The stack.

    Raises:
        DarnError: The architecture does not suit the data.
    """
    check_values(arch, layer_names)
    if not isinstance(n_x, Integral) or n_x < 1:
        raise InputError(f"n_x must be a whole number, 1 or more, not {n_x!r}")
    make = _local_stack if arch.is_local else _stack
    model = make(arch, n_x, n_context, shape, key)
    if groups is not None:
        visible = _visible_layer(model)
        if visible.n_orders > 1:
            raise DarnError(
                f"visible {arch.visible} has no single order to settle groups in: choose linear, nade or factorial"
            )
        if numbers and not visible.independent:
            words, edges = zip(*numbers)
            of_numbers = {"factors": factors, "key": jax.random.fold_in(key, len(words))}
            visible = Numbers(visible, words, edges, _visible_context(arch, n_context), **of_numbers)
        model = eqx.tree_at(_visible_layer, model, Groups(visible, groups))
    if mean is None:
        return model
    # Constant columns would put the bias at infinity.
    mean = jnp.clip(jnp.asarray(mean, jnp.float32), rarest, 1 - rarest)
    if mean.shape != (n_x,):
        raise InputError(f"the mean must have shape {(n_x,)}, one number for each column, not {mean.shape}")
    return eqx.tree_at(_visible_layer, model, _visible_layer(model).with_bias(mean))


def _visible_layer(model: Stack) -> AbstractBinaryLayer:
    return model.decoder[0].layer


def _visible_context(arch: Architecture, n_context: int) -> int:
    """The units that the visible layer of a fully connected stack is given."""
    parents = sum(arch.n_h if arch.skip else arch.n_h[:1]) + n_context
    widths = arch.n_d if arch.decoder_d is None else arch.decoder_d
    return widths[-1] if widths and parents else parents


def _stack(arch: Architecture, n_x: int, n_context: int, shape, key: PRNGKeyArray) -> Stack:
    """A fully connected stack. Every conditional with parents has a net; a prior without context has no parents."""
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


@dataclass(frozen=True)
class _Level:
    """A stochastic layer of a local stack, and the maps to it from the layer below."""

    maps: tuple[Dense | Local, ...]  # from the layer below upwards
    n: int
    W: CausalLocal | None  # the autoregression within the layer, if it is local


def _local_stack(arch: Architecture, n_x: int, n_context: int, shape, key: PRNGKeyArray) -> Stack:
    """A stack over images: local layers from x upwards, then fully connected ones; the decoder mirrors the encoder.

    Between two stochastic layers there are maps, with a nonlinearity after each but the last, which is the layer's own
    U.
    """
    if shape is None or n_x % (shape[0] * shape[1]):
        needs = f"visible {arch.visible} needs" if arch.visible in ("grid", "conv") else "local layers need"
        raise DarnError(f"{needs} images, but these rows have no image shape: choose other layers")
    grid = (*shape, n_x // (shape[0] * shape[1]))
    if arch.visible == "conv" and arch.is_stochastic and arch.conv_channels % grid[2]:
        raise DarnError(f"conv_channels must be a multiple of the {grid[2]} bits of a pixel, not {arch.conv_channels}")
    if n_context:
        raise DarnError("local layers do not support a context: leave out the labels")
    keys = (jax.random.fold_in(key, i) for i in itertools.count())
    window = CausalLocal(grid, arch.ar.kernel, period=arch.ar.period) if arch.visible == "grid" else None
    below, kind = _Level((), n_x, window), arch.visible
    decoder, encoder = [], []
    # A level's maps take their keys when the loop advances, and its mirrored maps after them. Published weights depend
    # on this order.
    for level in _levels(arch, grid, keys):
        channels = arch.conv_channels // grid[2] if kind == "conv" else 1
        U, *others = [
            m.mirrored(channels=1 if k else channels, bias=k > 0, key=next(keys)) for k, m in enumerate(level.maps)
        ]
        layer = _conv(arch, grid, U, next(keys)) if kind == "conv" else _with_maps(kind, below.n, below.W, U)
        decoder.append(Conditional(layer, _net(others[::-1], arch)))
        last = eqx.tree_at(lambda m: m.b, level.maps[-1], None)  # the layer has its own bias
        encoder.append(Conditional(Factorial(level.n, U=last), _net(level.maps[:-1], arch)))
        below, kind = level, arch.prior if level.W is None else "grid"
    if kind in ("grid", "factorial", "linear"):
        top = _with_maps(kind, below.n, below.W, None)
    elif kind == "conv":
        top = _conv(arch, grid, None, next(keys))
    else:
        top = _layer(kind, below.n, 0, arch, next(keys))
    return Stack((*decoder, Conditional(top)), tuple(encoder))


def _levels(arch: Architecture, grid: Grid, keys: Iterator[PRNGKeyArray]) -> Iterator[_Level]:
    """The stochastic layers of a local stack, bottom-up."""
    maps: list[Dense | Local] = []

    def add(layer: LocalLayer) -> Grid:
        made = Local(grid, layer.kernel, layer.filters, stride=layer.stride, period=arch.period, key=next(keys))
        maps.append(made)
        return made.out

    for layer in arch.local:
        grid = add(layer)
    for layer in arch.local_h:
        grid = add(layer)
        yield _Level(tuple(maps), math.prod(grid), CausalLocal(grid, arch.ar_h.kernel, period=arch.ar_h.period))
        maps.clear()
    for n in arch.n_h:
        widths = itertools.pairwise([math.prod(grid), *arch.n_d, n])
        yield _Level((*maps, *[Dense(a, b, key=next(keys)) for a, b in widths]), n, None)
        maps.clear()
        grid = (1, 1, n)


def _net(maps: Sequence[AbstractMap], arch: Architecture) -> Net | None:
    """The maps with a nonlinearity after each."""
    activation = ACTIVATIONS[arch.activation]
    return Net(tuple(f for m in maps for f in (m, activation()))) if maps else None


def _with_maps(kind: str, n: int, W: CausalLocal | None, U: AbstractMap | None) -> AbstractBinaryLayer:
    """A layer of a local stack, with the given maps."""
    if kind == "factorial":
        return Factorial(n, U=U)
    if kind in ("grid", "linear"):
        return LinearAutoregressive(n, U=U, W=W)
    raise DarnError(f"in a local stack, only the top layer can be {kind}: the others must be linear or factorial")


def _conv(arch: Architecture, grid: Grid, U: AbstractMap | None, key: PRNGKeyArray) -> AbstractBinaryLayer:
    """Causal convolutions over images, in one order or in all symmetries of the image."""
    places = symmetries(grid)[: None if arch.orders == "symmetries" else 1]
    core = CausalConv(
        grid,
        channels=arch.conv_channels,
        n_blocks=arch.conv_blocks,
        dilations=arch.conv_dilations,
        first=(arch.conv_start.rows, arch.conv_start.columns, arch.conv_start.left),
        places=arch.conv_places,
        again=arch.conv_again,
        dropout=arch.dropout,
        n_told=len(places),
        U=U,
        key=key,
    )
    return core if arch.orders == "one" else Orders(core, places)


def fvsbn(n_x: int, *, key: PRNGKeyArray, **options) -> Stack:
    """Fully visible sigmoid belief network: a linear autoregressive visible layer without hidden layers.

    Args:
        n_x: visible units.
        key: of the weights.
        **options: see `build`.

    Returns:
        The stack.
    """
    return build(Architecture(n_h=(), visible="linear"), n_x, key=key, **options)


def nade(n_x: int, n_hidden: int = 500, *, key: PRNGKeyArray, **options) -> Stack:
    """NADE with one hidden layer.

    Args:
        n_x: visible units.
        n_hidden: hidden units.
        key: of the weights.
        **options: see `build`.

    Returns:
        The stack.
    """
    return build(Architecture(n_h=(), visible="nade", n_nade=(n_hidden,)), n_x, key=key, **options)


def eonade(n_x: int, n_hidden=(500,), n_orderings: int = 16, *, key: PRNGKeyArray, **options) -> Stack:
    """EoNADE with one or more hidden layers.

    Args:
        n_x: visible units.
        n_hidden: units of each hidden layer.
        n_orderings: orders of the units that are averaged over.
        key: of the weights and the orders.
        **options: see `build`.

    Returns:
        The stack.
    """
    arch = Architecture(n_h=(), visible="eonade", n_nade=tuple(n_hidden), n_orderings=n_orderings)
    return build(arch, n_x, key=key, **options)


def mixture(n_x: int, n_components: int = 10, *, key: PRNGKeyArray, **options) -> Stack:
    """Mixture of Bernoullis.

    Args:
        n_x: visible units.
        n_components: components of the mixture.
        key: of the weights.
        **options: see `build`.

    Returns:
        The stack.
    """
    return build(Architecture(n_h=(), visible="mixture", n_components=n_components), n_x, key=key, **options)


def darn(
    n_x: int, n_h: int = 500, n_d: int = 500, visible: str = "factorial", *, key: PRNGKeyArray, **options
) -> Stack:
    """The paper's DARN: one stochastic layer, one tanh layer in the encoder and one in the decoder.

    Args:
        n_x: visible units.
        n_h: stochastic hidden units.
        n_d: units of each tanh layer.
        visible: name of the visible layer, see `layer_names`.
        key: of the weights.
        **options: see `build`.

    Returns:
        The stack.
    """
    return build(Architecture(n_h=(n_h,), n_d=(n_d,), visible=visible), n_x, key=key, **options)


def deep_darn(n_x: int, n_h=(80,) * 12, n_d: int = 400, *, key: PRNGKeyArray, **options) -> Stack:
    """The paper's deep DARN: many stochastic layers, each seeing all those above it (in the encoder: below it).

    Args:
        n_x: visible units.
        n_h: units of each stochastic layer.
        n_d: units of each tanh layer.
        key: of the weights.
        **options: see `build`.

    Returns:
        The stack.
    """
    arch = Architecture(n_h=tuple(n_h), n_d=(n_d,), visible="factorial", skip=True)
    return build(arch, n_x, key=key, **options)


def fdarn(n_x: int, n_h: int = 400, n_d: int = 500, *, key: PRNGKeyArray, **options) -> Stack:
    """fDARN: no deterministic layer in the decoder, so that a sparse code makes sampling cheap.

    Args:
        n_x: visible units.
        n_h: stochastic hidden units.
        n_d: units of the encoder's tanh layer.
        key: of the weights.
        **options: see `build`.

    Returns:
        The stack.
    """
    arch = Architecture(n_h=(n_h,), encoder_d=(n_d,), decoder_d=(), visible="factorial")
    return build(arch, n_x, key=key, **options)


def local_darn(shape: tuple[int, int], n_h: int = 300, *, filters: int = 32, key: PRNGKeyArray, **options) -> Stack:
    """The paper's Atari network, section 5.3: two local ReLU layers, n_h units, local autoregression over x.

    Args:
        shape: rows and columns of an image.
        n_h: stochastic hidden units.
        filters: of each local layer.
        key: of the weights.
        **options: see `build`.

    Returns:
        The stack.
    """
    local = (LocalLayer(8, 4, filters), LocalLayer(4, 2, filters))
    arch = Architecture(n_h=(n_h,), n_d=(), activation="relu", visible="grid", local=local)
    return build(arch, shape[0] * shape[1], shape=shape, key=key, **options)

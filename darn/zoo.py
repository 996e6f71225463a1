"""Builders: each returns a `Stack` with fresh weights."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from darn.config import Architecture
from darn.errors import DarnError
from darn.layers import NADE, AbstractBinaryLayer, EoNADE, Factorial, LinearAutoregressive, Mixture, OneHot
from darn.model import Conditional, Stack
from darn.nn import Net


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


def build(arch: Architecture, n_x: int, *, n_context: int = 0, mean=None, groups=None, key: PRNGKeyArray) -> Stack:
    """The stack that `arch` describes over n_x visible units.

    `mean`: the training rows' mean, from which the visible biases start. `groups`: sizes of adjacent groups of visible
    units of which exactly one is on (`OneHot`). A net stands wherever a conditional has parents: a prior without
    context has none.
    """
    if groups is not None and arch.visible == "eonade":
        raise DarnError("--visible eonade has no order to settle groups in: choose linear, nade or factorial")
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
    if groups is not None:
        decoder[0] = Conditional(OneHot(decoder[0].layer, groups), decoder[0].net)
    model = Stack(tuple(decoder), tuple(encoder), arch.skip, n_context)
    if mean is None:
        return model
    # Constant columns would put the bias at infinity: never nearer to 0 or 1 than one row in a thousand.
    mean = jnp.clip(jnp.asarray(mean, jnp.float32), 1e-3, 1 - 1e-3)
    return eqx.tree_at(lambda m: m.decoder[0].layer, model, model.decoder[0].layer.with_bias(mean))


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

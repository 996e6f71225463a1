"""Conditional and Stack: layers on top of each other."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from darn.gradients import Estimator, bernoulli
from darn.layers import AbstractBinaryLayer
from darn.nn import AbstractMap, register


@register("conditional")
class Conditional(eqx.Module):
    """A layer under a deterministic net: d = net(parents), then p(y | d); Eqs. (9) and (10).

    Args:
        layer: the distribution.
        net: from the parents to its context; None passes them on.
    """

    layer: AbstractBinaryLayer
    net: AbstractMap | None = None

    def context(self, parents: Sequence[Array | None]) -> Array | None:
        """The layer's context: the parents concatenated and passed through the net; None if there are none.

        Args:
            parents: the layers and the observed context that it is given; None for those that are not there.

        Returns:
            (n_c,), or None.
        """
        given = [p for p in parents if p is not None]
        if not given:
            return None
        c = jnp.concatenate(given)
        return c if self.net is None else self.net(c)


@register("stack")
class Stack(eqx.Module):
    """A DARN: decoder p(x, h) and encoder q(h | x) over n_layers stochastic layers, Eqs. (7) and (8).

    `decoder[l]` is p(h^l | layers above), with h^0 = x; `encoder[k]` is q(h^(k+1) | layers below). A conditional sees
    the nearest layer, or with `skip` every stochastic layer above it (in the encoder: below it), and always the
    observed `context`, if there is one. Without hidden layers this is a plain density model: FVSBN, NADE, EoNADE, a
    mixture.

    One example at a time; batches by `jax.vmap`. `h` is a tuple; h[0] is h^(1).

    Args:
        decoder: from the visible layer up, one more than the encoder.
        encoder: from the first hidden layer up.
        skip: whether a conditional sees all stochastic layers on its side, not only the nearest.
        n_context: units of the observed context.
    """

    decoder: tuple[Conditional, ...]
    encoder: tuple[Conditional, ...] = ()
    skip: bool = eqx.field(static=True, default=False)
    n_context: int = eqx.field(static=True, default=0)

    def __check_init__(self):
        if len(self.decoder) != len(self.encoder) + 1:
            raise ValueError("the decoder must have one more conditional than the encoder: the visible layer's")
        for up, down in zip(self.encoder, self.decoder[1:]):
            if up.layer.n != down.layer.n:
                raise ValueError(f"the encoder has a layer of {up.layer.n} units where the decoder has {down.layer.n}")

    @property
    def n_x(self) -> int:
        return self.decoder[0].layer.n

    @property
    def n_h(self) -> tuple[int, ...]:
        return tuple(part.layer.n for part in self.decoder[1:])

    @property
    def n_layers(self) -> int:
        return len(self.encoder)

    @property
    def row_floats(self) -> int:
        """Floats in the largest array that scoring one row needs; decides how many rows fit into memory."""
        parts = (*self.decoder, *self.encoder)
        return max(max(part.layer.row_floats, 0 if part.net is None else part.net.row_floats) for part in parts)

    def above(self, l: int, h: Sequence[Array], context: Array | None = None) -> Array | None:
        """The context of decoder[l]'s layer.

        Args:
            l: the layer's number, 0 for the visible one.
            h: the hidden layers from the bottom; h[0] is h^(1).
            context: (n_context,), the observed context; None without one.

        Returns:
            (n_c,), or None.
        """
        parents = h[l:] if self.skip else h[l : l + 1]
        return self.decoder[l].context([*parents, context])

    def below(self, k: int, x: Array, h: Sequence[Array], context: Array | None = None) -> Array | None:
        """The context of encoder[k]'s layer.

        Args:
            k: the layer's number, from 0.
            x: (n_x,), a row.
            h: at least the hidden layers below it.
            context: (n_context,), the observed context; None without one.

        Returns:
            (n_c,), or None.
        """
        known = [x, *h[:k]]
        return self.encoder[k].context([*(known if self.skip else known[-1:]), context])

    def encoder_keys(self, key: PRNGKeyArray):
        """One key per stochastic layer, bottom-up. Deriving a key costs as much as drawing a layer: none is wasted.

        Args:
            key: of all layers.
        """
        return [key] if self.n_layers == 1 else jax.random.split(key, self.n_layers)

    def encode(
        self,
        x: Float[Array, " n_x"],
        context: Array | None = None,
        *,
        key: PRNGKeyArray,
        bit: Estimator = bernoulli,
    ) -> tuple[Array, ...]:
        """h ~ q(H | x), bottom-up.

        Args:
            x: (n_x,), a row.
            context: (n_context,), the observed context; None without one.
            key: of all that is drawn.
            bit: draws a bit from its logit, with a gradient: see `darn.gradients`.

        Returns:
            The hidden layers from the bottom.
        """
        h: tuple[Array, ...] = ()
        for k, key_k in enumerate(self.encoder_keys(key)):
            c = self.below(k, x, h, context)
            h = (*h, self.encoder[k].layer.sample(c, key=key_k, bit=bit))
        return h

    def log_q_layers(self, x: Array, h: Sequence[Array], context: Array | None = None) -> tuple[Array, ...]:
        """log q(h^k | layers below) for k = 1..n_layers.

        Args:
            x: (n_x,), a row.
            h: the hidden layers from the bottom; h[0] is h^(1).
            context: (n_context,), the observed context; None without one.

        Returns:
            A scalar for each hidden layer.
        """
        return tuple(part.layer.log_prob(h[k], self.below(k, x, h, context)) for k, part in enumerate(self.encoder))

    def log_p_layers(
        self, x: Float[Array, " n_x"], h: Sequence[Array], context: Array | None = None
    ) -> tuple[Array, ...]:
        """log p(h^l | layers above) for l = 0..n_layers, h^0 = x.

        Args:
            x: (n_x,), a row.
            h: the hidden layers from the bottom; h[0] is h^(1).
            context: (n_context,), the observed context; None without one.

        Returns:
            A scalar for each layer, the visible one first.
        """
        parts = enumerate(zip(self.decoder, (x, *h)))
        return tuple(part.layer.log_prob(y, self.above(l, h, context)) for l, (part, y) in parts)

    def training_log_p_layers(
        self,
        x: Float[Array, " n_x"],
        h: Sequence[Array],
        context: Array | None = None,
        *,
        key: PRNGKeyArray,
        validating: bool = False,
    ) -> tuple[Array, ...]:
        """`log_p_layers` for training, where layers may return an estimate: see `AbstractBinaryLayer`.

        With `validating`, without noise that only training uses, such as dropout.

        Args:
            x: (n_x,), a row.
            h: the hidden layers from the bottom; h[0] is h^(1).
            context: (n_context,), the observed context; None without one.
            key: of what an estimate draws, and of dropout.
            validating: whether to leave out noise that only training uses, such as dropout.

        Returns:
            A scalar for each layer, the visible one first.
        """

        def one(layer: AbstractBinaryLayer, y, c, k):
            log_prob = layer.validation_log_prob if validating else layer.training_log_prob
            return log_prob(y, c, key=k)

        parts = enumerate(zip(self.decoder, (x, *h), jax.random.split(key, len(self.decoder))))
        return tuple(one(part.layer, y, self.above(l, h, context), k) for l, (part, y, k) in parts)

    def log_q(self, x: Array, h: Sequence[Array], context: Array | None = None) -> Float[Array, ""]:
        """log q(h | x), Eq. (4).

        Args:
            x: (n_x,), a row.
            h: the hidden layers from the bottom; h[0] is h^(1).
            context: (n_context,), the observed context; None without one.

        Returns:
            A scalar.
        """
        return sum(self.log_q_layers(x, h, context), start=jnp.zeros(()))

    def log_p(self, x: Array, h: Sequence[Array] = (), context: Array | None = None) -> Float[Array, ""]:
        """log p(x, h).

        Args:
            x: (n_x,), a row.
            h: the hidden layers from the bottom; h[0] is h^(1).
            context: (n_context,), the observed context; None without one.

        Returns:
            A scalar.
        """
        return sum(self.log_p_layers(x, h, context), start=jnp.zeros(()))

    def log_prior(self, h: Sequence[Array], context: Array | None = None) -> Float[Array, ""]:
        """log p(h).

        Args:
            h: the hidden layers from the bottom; h[0] is h^(1).
            context: (n_context,), the observed context; None without one.

        Returns:
            A scalar.
        """
        parts = enumerate(zip(self.decoder[1:], h), start=1)
        each = (part.layer.log_prob(y, self.above(l, h, context)) for l, (part, y) in parts)
        return sum(each, start=jnp.zeros(()))

    def entropy_layers(self, x: Array, h: Sequence[Array], context: Array | None = None) -> tuple[Array, ...]:
        """The entropy of each q(h^k | layers below) in closed form; every encoder layer must support it.

        Args:
            x: (n_x,), a row.
            h: the hidden layers from the bottom; h[0] is h^(1).
            context: (n_context,), the observed context; None without one.

        Returns:
            A scalar for each hidden layer.
        """
        return tuple(part.layer.entropy(self.below(k, x, h, context)) for k, part in enumerate(self.encoder))

    @property
    def trains_by_estimate(self) -> bool:
        """Whether any decoder layer trains on an estimate of its log-probability."""
        return any(part.layer.trains_by_estimate for part in self.decoder)

    def sample(
        self, context: Array | None = None, *, key: PRNGKeyArray, h: Sequence[Array] = ()
    ) -> tuple[Array, tuple[Array, ...]]:
        """(x, h) ~ p, by ancestral sampling; `h` holds the topmost layers if they are already known.

        Args:
            context: (n_context,), the observed context; None without one.
            key: of all that is drawn.
            h: the topmost layers, if they are already known.

        Returns:
            The row and the hidden layers.
        """
        known = self._down(0, tuple(h), context, key)
        return known[0], known[1:]

    def sample_code(self, context: Array | None = None, *, key: PRNGKeyArray) -> tuple[Array, ...]:
        """h ~ p.

        Args:
            context: (n_context,), the observed context; None without one.
            key: of all that is drawn.

        Returns:
            The hidden layers from the bottom.
        """
        return self._down(1, (), context, key)

    def _down(self, last: int, known: tuple[Array, ...], context: Array | None, key: PRNGKeyArray) -> tuple[Array, ...]:
        """The layers from `last` on, drawn from the top; `known` holds the topmost ones."""
        keys = jax.random.split(key, self.n_layers + 1)
        for l in range(self.n_layers - len(known), last - 1, -1):
            # `known` begins at layer l + 1, but `above` indexes from layer 1
            padded = (jnp.zeros(0),) * l + known
            known = (self.decoder[l].layer.draw(self.above(l, padded, context), key=keys[l]), *known)
        return known

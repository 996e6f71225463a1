"""The layer protocol: everything that training, scoring, sampling, completion, compression and counting need."""

import abc
import dataclasses
import re
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.nn import logsumexp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from darn.errors import InputError
from darn.gradients import Estimator, bernoulli
from darn.nn import COMPILED, AbstractTurns, Arithmetic, Decide, Inputs, Work, replaced, softplus
from darn.random import uniform


def bits_log_prob(y: Float[Array, " n"], a: Float[Array, " n"]) -> Float[Array, ""]:
    """sum_j log p(y_j) for bits with logits `a`; linear in y, so y may also be intensities in [0,1]."""
    return jnp.sum(y * a - softplus(a))


def bias_field() -> Any:
    """A field that holds a bias for every unit."""
    return eqx.field(metadata={"role": "bias"})


def _bias_name(layer: eqx.Module) -> str | None:
    """The layer's own `bias_field`, if it has one."""
    return next((f.name for f in dataclasses.fields(layer) if f.metadata.get("role") == "bias"), None)


class Linear(NamedTuple):
    """The weights of a layer with linear logits b + U c + W y."""

    b: np.ndarray  # (n,)
    U: np.ndarray | None  # (n, n_c)
    W: np.ndarray | None  # (n, n) from unit j (second axis) to later ones; None if the units are independent


class AbstractBinaryLayer(eqx.Module):
    """A distribution over y in {0,1}^n given a context c (None for a prior). One example at a time.

    A layer is a chain of conditionals, Eq. (1). For a known y, `logits` computes all units at once; otherwise `start`
    and `walk` decide the units from a running state, one by one or in blocks. Independent units are a chain of a single
    block. A layer may also be a uniform mixture of `n_orders` such chains; `order` then selects one of them.

    To write a layer, define `n`, `logits` and `start`, and either `read` and `write` (one unit at a time) or `walk`.
    Everything else has a default, which may be overridden by something faster.
    """

    n: eqx.AbstractVar[int]

    # ---------------------------------------------------------------- the distribution

    @abc.abstractmethod
    def logits(self, y: Float[Array, " n"], c: Array | None = None, *, order: Any = 0) -> Float[Array, " n"]:
        """The logit of each unit given the units before it, for a known y.

        Args:
            y: (n,) of 0 and 1.
            c: (n_c,), the context; None without one.
            order: which of the `n_orders` chains.

        Returns:
            (n,), the logits of y = 1.
        """

    @abc.abstractmethod
    def start(self, c: Array | None = None, *, order: Any = 0) -> Any:
        """The state before any unit is decided: a pytree of arrays.

        Args:
            c: (n_c,), the context; None without one.
            order: which of the `n_orders` chains.

        Returns:
            The state, for `read`, `write` and `walk`.
        """

    def read(self, state: Any, j) -> Float[Array, ""]:
        """The logit of unit j; the units before it have been written.

        Args:
            state: from `start` or `write`.
            j: the unit's number.

        Returns:
            A scalar.
        """
        raise TypeError(f"{type(self).__name__} must define either `read` and `write` or `walk`")

    def write(self, state: Any, j, y_j) -> Any:
        """The state after unit j is decided.

        Args:
            state: from `start` or `write`.
            j: the unit's number.
            y_j: its value, 0 or 1.

        Returns:
            The next state.
        """
        raise TypeError(f"{type(self).__name__} must define either `read` and `write` or `walk`")

    def walk(self, state: Any, decide: Decide, carry: Any, turns: AbstractTurns = COMPILED) -> tuple[Any, Any]:
        """Decides all units from the state that `start` returns.

        Args:
            state: from `start`.
            decide: chooses bits from logits, `(carry, units, a) -> (carry, bits)`; see `darn.nn.Decide`.
            carry: any pytree, passed from one call of `decide` to the next.
            turns: whether the walk runs compiled or on the host; see `AbstractTurns`.

        Returns:
            (y, carry).
        """
        return turns.one_by_one(self, state, decide, carry)

    def chain(self, decide: Decide, carry: Any, c: Array | None = None, *, order: Any = 0) -> tuple[Array, Any]:
        """Decides all units in order, given c. Sampling, rounding and completion differ only in `decide`.

        Args:
            decide: chooses bits from logits, `(carry, units, a) -> (carry, bits)`; see `darn.nn.Decide`.
            carry: any pytree, passed from one call of `decide` to the next.
            c: the context.
            order: which of the `n_orders` chains.

        Returns:
            (y, carry).
        """
        return self.walk(self.start(c, order=order), decide, carry)

    def log_prob(self, y: Float[Array, " n"], c: Array | None = None) -> Float[Array, ""]:
        """log p(y | c) in nats.

        Args:
            y: (n,) of 0 and 1.
            c: (n_c,), the context; None without one.

        Returns:
            A scalar.
        """
        if self.n_orders == 1:
            return bits_log_prob(y, self.logits(y, c))
        each = lax.map(lambda k: bits_log_prob(y, self.logits(y, c, order=k)), jnp.arange(self.n_orders))
        return logsumexp(each) - jnp.log(self.n_orders)

    def log_prob_of(self, y: Float[Array, " n"], known: Bool[Array, " n"], c: Array | None = None) -> Float[Array, ""]:
        """The log-probability of the known units, none of which may depend on the others (see `separates`).

        Args:
            y: (n,) of 0 and 1.
            known: (n,) of bool.
            c: (n_c,), the context; None without one.

        Returns:
            A scalar, in nats.
        """
        a = self.logits(y, c)
        return jnp.sum(jnp.where(known, y * a - softplus(a), 0))

    def training_log_prob(
        self, y: Float[Array, " n"], c: Array | None = None, *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """log p(y | c), or a cheaper estimate for training (see `trains_by_estimate`).

        Args:
            y: (n,) of 0 and 1.
            c: (n_c,), the context; None without one.
            key: of what an estimate draws, and of dropout.

        Returns:
            A scalar.
        """
        return self.log_prob(y, c)

    def validation_log_prob(
        self, y: Float[Array, " n"], c: Array | None = None, *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """`training_log_prob` without noise that only training uses, such as dropout; epochs are compared by it.

        Args:
            y: (n,) of 0 and 1.
            c: (n_c,), the context; None without one.
            key: of what an estimate draws.

        Returns:
            A scalar.
        """
        return self.training_log_prob(y, c, key=key)

    def draw_order(self, key: PRNGKeyArray) -> tuple[Any, PRNGKeyArray]:
        """Returns (an order drawn at random, a key for what follows).

        Args:
            key: of all that is drawn.
        """
        if self.n_orders == 1:
            return 0, key
        k_order, key = jax.random.split(key)
        return jax.random.randint(k_order, (), 0, self.n_orders), key

    def sample(self, c: Array | None = None, *, key: PRNGKeyArray, bit: Estimator = bernoulli) -> Float[Array, " n"]:
        """y ~ p(. | c); gradients flow through `bit`.

        Args:
            c: (n_c,), the context; None without one.
            key: of all that is drawn.
            bit: draws a bit from its logit, with a gradient: see `darn.gradients`.

        Returns:
            (n,) of 0 and 1.
        """
        order, key = self.draw_order(key)
        u = uniform(key, self.n)
        return self.chain(lambda carry, j, a: (carry, bit(a, u[j])), None, c, order=order)[0]

    def draw(self, c: Array | None = None, *, key: PRNGKeyArray) -> Float[Array, " n"]:
        """y ~ p(. | c) without a gradient: `sample`, or the same bits by whatever draws many rows faster.

        Args:
            c: (n_c,), the context; None without one.
            key: of all that is drawn.

        Returns:
            (n,) of 0 and 1.
        """
        return self.sample(c, key=key)

    def most_probable(self, c: Array | None = None) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Each unit at its more probable value given the units before it, and its probability of being on.

        Args:
            c: (n_c,), the context; None without one.

        Returns:
            (y, p), (n,) each.
        """

        def decide(a, j, a_j):
            return a.at[j].set(a_j), (a_j > 0).astype(a.dtype)

        y, a = self.chain(decide, jnp.zeros(self.n), c)
        return y, jax.nn.sigmoid(a)

    # ---------------------------------------------------------------- properties

    @property
    def title(self) -> str:
        """What a report calls the layer: its class in words, "linear autoregressive" or "NADE"."""
        words = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", type(self).__name__).split()
        return " ".join(w.lower() if re.fullmatch("[A-Z][a-z]*", w) else w for w in words)

    @property
    def n_orders(self) -> int:
        """The number of chains that the layer is a uniform mixture of."""
        return 1

    def sequence(self, order: Any = 0) -> Int[Array, " n"]:
        """The units in the sequence in which one of the chains decides them.

        Args:
            order: which of the `n_orders` chains.

        Returns:
            (n,), the units' numbers.
        """
        return jnp.arange(self.n)

    @property
    def independent(self) -> bool:
        """Whether the units are independent given c: y may then be intensities, and `entropy` has a closed form."""
        return False

    @property
    def trains_by_estimate(self) -> bool:
        """Whether `training_log_prob` is an unbiased estimate instead of log p(y | c)."""
        return False

    def entropy(self, c: Array | None = None) -> Float[Array, ""]:
        """-E[log p(y | c)] in nats, in closed form.

        Args:
            c: (n_c,), the context; None without one.

        Returns:
            A scalar.
        """
        raise InputError(f"the entropy of a {type(self).__name__} layer has no closed form: use factorial layers")

    def separates(self, missing: np.ndarray) -> bool:
        """Whether no observed unit depends on a missing one, in any row; `missing` is (rows, n) of bool.

        Args:
            missing: (rows, n) of bool.

        Returns:
            Whether that holds for all rows.
        """
        after = np.cumsum(missing, axis=1) > 0
        return self.n_orders == 1 and not (after & ~missing).any()

    def shifted(self, by: Float[Array, " n"]) -> "AbstractBinaryLayer":
        """The same layer with its units' biases moved; `independent` layers only.

        Args:
            by: (n,), added to the biases.

        Returns:
            The new layer.
        """
        name = _bias_name(self)
        return self if name is None else replaced(self, **{name: getattr(self, name) + by})

    def with_bias(self, mean: Float[Array, " n"]) -> "AbstractBinaryLayer":
        """The same layer, its units' biases set so that it starts from the given mean activities.

        A layer without a `bias_field` stays as it is.

        Args:
            mean: (n,), above 0 and below 1.

        Returns:
            The new layer.
        """
        name = _bias_name(self)
        a = jnp.asarray(jnp.log(mean) - jnp.log1p(-mean), jnp.float32)
        return self if name is None else replaced(self, **{name: a})

    # ---------------------------------------------------------------- building, compressing, counting

    by_name: ClassVar[bool] = True  # whether an architecture may name the layer

    @classmethod
    def make(cls, n: int, n_c: int, options: Mapping[str, Any], *, key: PRNGKeyArray) -> "AbstractBinaryLayer":
        """A fresh layer over n units given n_c; `options` are the fields of an `Architecture`."""
        return cls(n, n_c, key=key)  # type: ignore[call-arg]

    @property
    def row_floats(self) -> int:
        """Floats in the largest array that scoring one row needs; decides how many rows fit into memory."""
        return self.n

    @property
    def clips(self) -> bool:
        """Whether the integer twin clips activations, as a deep net must: see `darn.nn.CLIPPED`."""
        return False

    def quantised(self, c: Inputs, arithmetic: Arithmetic) -> "AbstractBinaryLayer":
        """The integer twin of the layer, for the codec: the same class with weights on a grid.

        Args:
            c: size, grid and range of the context.
            arithmetic: the float type and how its bits are used.

        Returns:
            The twin, whose sums are exact in any order.
        """
        raise InputError(
            f"{type(self).__name__} layers have no integer twin, so a model with one cannot compress: "
            "train a model with factorial, linear or NADE layers"
        )

    def work(self, y: np.ndarray, c: np.ndarray | None) -> Work:
        """The work of drawing y given c, where bits that are off cost nothing.

        Args:
            y: (n,) of 0 and 1.
            c: (n_c,), the context; None without one.

        Returns:
            The weights that are multiplied, and those that are added.
        """
        raise InputError(f"the operations of a {type(self).__name__} layer cannot be counted")

    def linear(self) -> Linear:
        """The weights of a layer whose logits are linear in y and c, for the sparse sampler."""
        raise InputError(
            f"the sparse sampler is for factorial and linear autoregressive layers, not {type(self).__name__}: "
            "use the usual sampler for this model"
        )

"""The protocol of a layer: all that training, scoring, sampling, completing, compressing and counting ask of one."""

import abc
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.nn import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray

from darn.errors import InputError
from darn.gradients import Estimator, bernoulli
from darn.nn import COMPILED, AbstractMap, AbstractTurns, Arithmetic, Decide, Dense, Inputs, Work, softplus
from darn.random import uniform


def bits_log_prob(y: Float[Array, " n"], a: Float[Array, " n"]) -> Float[Array, ""]:
    """sum_j log p(y_j) for bits with logits `a`; linear in y, so intensities in [0,1] are welcome."""
    return jnp.sum(y * a - softplus(a))


def context_map(n_c: int, n: int, key: PRNGKeyArray | None) -> Dense | None:
    """The fully connected U of a layer under n_c units; None where there is no context."""
    if not n_c:
        return None
    if key is None:
        raise ValueError("fresh weights need a key")
    return Dense(n_c, n, bias=False, key=key)


def plus_context(a: Array, U: AbstractMap | None, c: Array | None) -> Array:
    """a + U c where there is a context, else `a`."""
    if U is None:
        return a
    if c is None:
        raise ValueError("this layer was built with a context: pass one")
    add = U(c)
    if add.shape != a.shape:  # never broadcast: a map of one output would be added to every unit
        raise ValueError(f"the context makes {add.shape[0]} numbers for {a.shape[0]} units")
    return a + add


def context_work(U: AbstractMap | None, c: np.ndarray | None) -> Work:
    """What U c costs."""
    return Work() if U is None or c is None else U.work(c)


def context_field() -> Any:
    """A field whose weights read the context: the last axis of its arrays runs over the context's units."""
    return eqx.field(metadata={"role": "context"})


def bias_field() -> Any:
    """A field that holds a bias for every unit."""
    return eqx.field(metadata={"role": "bias"})


def context_matrix(b: Array, U: AbstractMap | None) -> tuple[np.ndarray, np.ndarray | None]:
    """(b, U) of b + U c, a bias of U's own included."""
    if U is None:
        return np.asarray(b), None
    W, more = U.matrix()
    return np.asarray(b) if more is None else np.asarray(b) + more, W


class Linear(NamedTuple):
    """The logits of a layer that is linear: b + U c + W y."""

    b: np.ndarray  # (n,)
    U: np.ndarray | None  # (n, n_c)
    W: np.ndarray | None  # (n, n) from unit j (second axis) onto later ones; None where units are independent


class AbstractBinaryLayer(eqx.Module):
    """A distribution over y in {0,1}^n given a context c (None for a prior). One example at a time.

    A layer is a chain of conditionals, Eq. (1): `logits` for all units at once when y is known, and the same from a
    running state, unit by unit or block by block, when it is not (`start`, `walk`). A layer of independent units is the
    chain of a single block. A layer may also be a uniform mixture of `n_orders` such chains; `order` then tells which.

    To write one, say `n`, `logits` and `start`, and either `read` and `write` (a unit at a time) or a `walk`. The rest
    has defaults, which may be replaced by something faster.
    """

    n: eqx.AbstractVar[int]

    # ---------------------------------------------------------------- the distribution

    @abc.abstractmethod
    def logits(self, y: Float[Array, " n"], c: Array | None = None, *, order: Any = 0) -> Float[Array, " n"]:
        """The logit of each unit given the units before it, y being known."""

    @abc.abstractmethod
    def start(self, c: Array | None = None, *, order: Any = 0) -> Any:
        """The state before any unit is known: a pytree of arrays."""

    def read(self, state: Any, j) -> Float[Array, ""]:
        """The logit of unit j; units before it have been written."""
        raise TypeError(f"{type(self).__name__} has neither `read` and `write` nor a `walk` of its own")

    def write(self, state: Any, j, y_j) -> Any:
        """The state once unit j is known."""
        raise TypeError(f"{type(self).__name__} has neither `read` and `write` nor a `walk` of its own")

    def walk(self, state: Any, decide: Decide, carry: Any, turns: AbstractTurns = COMPILED) -> tuple[Any, Any]:
        """Decides all units from the state of `start`: (y, carry). See `darn.nn.Decide` and `AbstractTurns`."""
        return turns.one_by_one(self, state, decide, carry)

    def chain(self, decide: Decide, carry: Any, c: Array | None = None, *, order: Any = 0) -> tuple[Array, Any]:
        """Decides all units in order, given c: (y, carry). Sampling, rounding, completing: each is a `decide`."""
        return self.walk(self.start(c, order=order), decide, carry)

    def log_prob(self, y: Float[Array, " n"], c: Array | None = None) -> Float[Array, ""]:
        """log p(y | c) in nats."""
        if self.n_orders == 1:
            return bits_log_prob(y, self.logits(y, c))
        each = lax.map(lambda k: bits_log_prob(y, self.logits(y, c, order=k)), jnp.arange(self.n_orders))
        return logsumexp(each) - jnp.log(self.n_orders)

    def training_log_prob(
        self, y: Float[Array, " n"], c: Array | None = None, *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """log p(y | c), or an estimate of it that is cheaper to train on (see `trains_by_estimate`)."""
        return self.log_prob(y, c)

    def validation_log_prob(
        self, y: Float[Array, " n"], c: Array | None = None, *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """What epochs are compared by: as in training, but without noise that is there for training alone."""
        return self.training_log_prob(y, c, key=key)

    def draw_order(self, key: PRNGKeyArray) -> tuple[Any, PRNGKeyArray]:
        """(an order drawn at random, a key for what comes next)."""
        if self.n_orders == 1:
            return 0, key
        k_order, key = jax.random.split(key)
        return jax.random.randint(k_order, (), 0, self.n_orders), key

    def sample(self, c: Array | None = None, *, key: PRNGKeyArray, bit: Estimator = bernoulli) -> Float[Array, " n"]:
        """y ~ p(. | c); gradients flow through `bit`."""
        order, key = self.draw_order(key)
        u = uniform(key, self.n)
        return self.chain(lambda carry, j, a: (carry, bit(a, u[j])), None, c, order=order)[0]

    def most_probable(self, c: Array | None = None) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Each unit at its more probable value given the units before it, and its probability of being on."""

        def decide(a, j, a_j):
            return a.at[j].set(a_j), (a_j > 0).astype(a.dtype)

        y, a = self.chain(decide, jnp.zeros(self.n), c)
        return y, jax.nn.sigmoid(a)

    # ---------------------------------------------------------------- what is special about it

    @property
    def n_orders(self) -> int:
        """Chains that the layer is a uniform mixture of."""
        return 1

    @property
    def independent(self) -> bool:
        """Whether the units are independent given c: y may then be intensities, and `entropy` is in closed form."""
        return False

    @property
    def trains_by_estimate(self) -> bool:
        """Whether `training_log_prob` is an unbiased estimate instead of log p(y | c)."""
        return False

    def entropy(self, c: Array | None = None) -> Float[Array, ""]:
        """-E[log p(y | c)] in nats, in closed form."""
        raise InputError(
            f"the entropy of a {type(self).__name__} layer has no closed form: only factorial layers have one"
        )

    def separates(self, missing: np.ndarray) -> bool:
        """Whether no observed unit depends on a missing one, in any row; missing: (rows, n) of bool."""
        after = np.cumsum(missing, axis=1) > 0
        return self.n_orders == 1 and not (after & ~missing).any()

    def shifted(self, by: Float[Array, " n"]) -> "AbstractBinaryLayer":
        """The same layer with its units' biases moved; `independent` layers only."""
        return eqx.tree_at(lambda layer: layer.b, self, self.b + by)  # type: ignore[attr-defined]

    def with_bias(self, mean: Float[Array, " n"]) -> "AbstractBinaryLayer":
        """The same layer, its units' biases set so that it starts from the given mean activities."""
        a = jnp.log(mean) - jnp.log1p(-mean)
        return eqx.tree_at(lambda layer: layer.b, self, jnp.asarray(a, jnp.float32))  # type: ignore[attr-defined]

    # ---------------------------------------------------------------- what other capabilities need

    by_name: ClassVar[bool] = True  # whether an architecture may ask for the layer by its registered name

    @classmethod
    def make(cls, n: int, n_c: int, options: Mapping[str, Any], *, key: PRNGKeyArray) -> "AbstractBinaryLayer":
        """A fresh layer over n units given n_c; `options` are the fields of an `Architecture`."""
        return cls(n, n_c, key=key)  # type: ignore[call-arg]

    @property
    def row_floats(self) -> int:
        """Floats of the widest array that scoring one row takes: how many rows fit into memory follows from it."""
        return self.n

    def quantised(self, c: Inputs, arithmetic: Arithmetic) -> "AbstractBinaryLayer":
        """The integer twin of the layer, for the codec: same class, weights on a grid. `c` tells of its context."""
        raise InputError(
            f"{type(self).__name__} layers have no integer twin, so a model with one cannot compress: "
            "train one with factorial, linear or NADE layers"
        )

    def work(self, y: np.ndarray, c: np.ndarray | None) -> Work:
        """The weights used in drawing y given c, no work being done for a bit that is off."""
        raise InputError(f"the weights that a {type(self).__name__} layer uses are not counted")

    def linear(self) -> Linear:
        """The layer's weights where it is linear in y and c; for the sparse sampler."""
        raise InputError(
            f"the sparse sampler is for factorial and linear autoregressive layers, not {type(self).__name__}: "
            "draw from this model with the usual sampler"
        )

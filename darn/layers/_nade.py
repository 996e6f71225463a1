"""NADE: autoregression through hidden units whose input is a running sum."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from darn.layers._base import AbstractBinaryLayer, bias_field
from darn.layers._context import context_field, context_map, context_work, plus_context
from darn.nn import ACTIVATIONS, AbstractMap, Net, Work, dropout, register, rounded, tuning_field

UNITS = 16  # on a CPU: a backward pass computes as many units again at a time
FLAT = 80.0  # exp of this is finite, and a sigmoid is constant far before


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"


@register("nade")
class NADE(AbstractBinaryLayer):
    """p(y_j = 1 | y_1..j-1, c) = sigma(b_j + U_j c + R_j d), d = net(act(e + A c + sum_i<j (y_i V_i + M_i))).

    Larochelle & Murray (2011); the state is the sum inside `act`. `M`, present only if `masked`, tells the hidden units
    which units are known (Uria et al., 2013), which matters if the order varies. `net` holds the deeper hidden layers,
    recomputed for every unit.

    Args:
        n: units.
        n_c: units of the context; 0 for none.
        n_hidden: hidden units; more than one number for deeper nets.
        activation: of the hidden units: a name of `darn.nn.ACTIVATIONS`.
        masked: whether hidden units are told which units are known.
        key: of the initial weights.
    """

    b: Float[Array, " n"] = bias_field()
    U: AbstractMap | None = context_field()
    A: AbstractMap | None = context_field()
    e: Float[Array, " n_hidden"]
    V: Float[Array, "n n_hidden"]
    M: Float[Array, "n n_hidden"] | None
    R: Float[Array, "n n_top"]
    act: AbstractMap
    net: Net
    n: int = eqx.field(static=True)
    block: int = tuning_field(default=28)  # units scored together

    def __init__(
        self,
        n: int,
        n_c: int = 0,
        *,
        n_hidden: Sequence[int] = (500,),
        activation: str = "sigmoid",
        masked: bool = False,
        key: PRNGKeyArray,
    ):
        k_v, k_m, k_r, k_u, k_a, k_net = jax.random.split(key, 6)
        first, *deeper = n_hidden
        top = n_hidden[-1]
        self.n = n
        self.b = jnp.zeros(n)
        self.e = jnp.zeros(first)
        self.V = jax.random.normal(k_v, (n, first)) / n**0.5
        self.M = jax.random.normal(k_m, (n, first)) / n**0.5 if masked else None
        self.R = jax.random.normal(k_r, (n, top)) * (0.1 / top**0.5)  # small, so that the biases dominate at first
        self.U = context_map(n_c, n, k_u)
        self.A = context_map(n_c, first, k_a)
        self.act = ACTIVATIONS[activation]()
        self.net = Net.dense(first, deeper, "tanh" if activation == "sigmoid" else activation, key=k_net)
        self.block = 28

    @classmethod
    def make(cls, n, n_c, options, *, key):
        return cls(n, n_c, n_hidden=options["n_nade"], key=key)

    def reordered(self, order: Int[Array, " n"]) -> "NADE":
        """The same conditionals with unit order[j] at position j: a distribution over y[order]."""
        if self.U is not None:
            raise ValueError("fold the context into the biases first, with `given`")
        where = lambda m: (m.b, m.V, m.R) if m.M is None else (m.b, m.V, m.R, m.M)  # noqa: E731
        return eqx.tree_at(where, self, [w[order] for w in where(self)])

    def given(self, c: Array | None) -> "NADE":
        """The same distribution with the context folded into the biases."""
        b, e = plus_context(self.b, self.U, c), plus_context(self.e, self.A, c)
        return eqx.tree_at(lambda m: (m.b, m.e, m.U, m.A), self, (b, e, None, None), is_leaf=lambda v: v is None)

    @property
    def row_floats(self):
        # On a CPU one hidden layer a row, but only as many rows as stay in its cache.
        at_once = min(8 if _on_cpu() else self.block, self.n)
        return max(self.n, 2 * at_once * max(self.V.shape[1], self.R.shape[1]))

    def start(self, c=None, *, order=0):
        return plus_context(self.e, self.A, c), plus_context(self.b, self.U, c)

    def hidden(self, running: Float[Array, " n_hidden"]) -> Float[Array, " n_top"]:
        """The last hidden layer, from the running sum."""
        return self.net(self.act(running))

    def dropped(self, running: Float[Array, " n_hidden"], rate: float, key: PRNGKeyArray) -> Float[Array, " n_top"]:
        """The same with dropout in every hidden layer."""
        hidden = dropout(self.act(running), rate, jax.random.fold_in(key, 0))
        for i in range(0, len(self.net.maps), 2):  # a product, then a nonlinearity
            hidden = Net(self.net.maps[i : i + 2])(hidden)
            hidden = dropout(hidden, rate, jax.random.fold_in(key, i + 1))
        return hidden

    def read(self, state, j):
        running, b = state
        return b[j] + jnp.dot(self.R[j], self.hidden(running))

    def write(self, state, j, y_j):
        running, b = state
        running = running + y_j * self.V[j]
        return (running if self.M is None else running + self.M[j]), b

    def logits(self, y, c=None, *, order=0):
        b = plus_context(self.b, self.U, c)
        own = jnp.zeros_like(self.e) if self.A is None else plus_context(jnp.zeros_like(self.e), self.A, c)
        if not _on_cpu():
            return b + self.blockwise(self.e + own, y)
        return b + (self.stepwise(self.e + own, y) if self.act.logistic is None else _factored(self, own, y))

    def blockwise(self, running: Float[Array, " n_hidden"], y: Float[Array, " n"]) -> Float[Array, " n"]:
        """The logits without their biases, many units at a time."""
        size = min(self.block, self.n)
        M = jnp.zeros_like(self.V) if self.M is None else self.M
        # Within a block the running sums are a product with a triangle of ones: XLA's cumsum is slow on a CPU.
        before = jnp.tril(jnp.ones((size, size)), -1)

        @jax.checkpoint
        def one_block(running, block):
            y, V, M, R = block
            steps = y[:, None] * V + M
            total = jnp.matmul(before, steps, precision=lax.Precision.HIGHEST)  # as exact as the stepwise sum
            hidden = jax.vmap(self.hidden)(running[None] + total)
            # As dot products: jaxlib 0.10.2 miscompiles the fused sum(R * hidden) on a CPU beyond 32,768 rows.
            return running + jnp.sum(steps, axis=0), jax.vmap(jnp.dot)(R, hidden)

        # The weights are the same for every row, so a batch shares them; only y has a batch axis.
        _, a = lax.scan(one_block, running, self._blocks(size, y, self.V, M, self.R))
        return a.reshape(-1)[: self.n]

    def stepwise(self, running: Float[Array, " n_hidden"], y: Float[Array, " n"]) -> Float[Array, " n"]:
        """The same, unit by unit: a batch's hidden layer then stays in the cache of a CPU, backwards too."""
        M = jnp.zeros_like(self.V) if self.M is None else self.M

        @jax.checkpoint
        def one(running, unit):
            y_j, V, M, R = unit
            # With R first, XLA would transpose the hidden layer.
            return running + y_j * V + M, jnp.dot(self.hidden(running), R)

        @jax.checkpoint
        def one_block(running, block):
            return lax.scan(one, running, block)

        _, a = lax.scan(one_block, running, self._blocks(min(UNITS, self.n), y, self.V, M, self.R))
        return a.reshape(-1)[: self.n]

    def _blocks(self, size: int, *arrays: Array) -> tuple[Array, ...]:
        """Arrays with an axis of units, padded and cut into blocks of units.

        Each unit has its own hidden layer. A backward pass keeps the running sums between blocks and computes a block
        again, so that a row takes about size x n_hidden floats instead of n x n_hidden.
        """
        pad = -self.n % size
        padded = (jnp.pad(w, [(0, pad)] + [(0, 0)] * (w.ndim - 1)) for w in arrays)
        return tuple(w.reshape(-1, size, *w.shape[1:]) for w in padded)

    def quantised(self, c, arithmetic):
        # Two sums on two grids: the running sum inside the activation, and the logits computed from the hidden units.
        def running(sizes):
            e, A, V, M = sizes
            total = plus_context(e, A, c.largest) + V.sum(0)
            return total if M is None else total + M.sum(0)

        inner, sums = rounded((self.e, self.A, self.V, self.M), running, c.grid, arithmetic)
        act, hidden = self.act.quantised(sums, arithmetic)
        net, top = self.net.quantised(hidden, arithmetic)

        def logits(sizes):
            b, U, R = sizes
            return plus_context(b, U, c.largest) + R @ top.largest

        outer, _ = rounded((self.b, self.U, self.R), logits, max(c.grid, top.grid), arithmetic)
        where = lambda m: (m.e, m.A, m.V, m.M, m.act, m.net, m.b, m.U, m.R)  # noqa: E731
        return eqx.tree_at(where, self, (*inner, act, net, *outer), is_leaf=lambda v: v is None)

    def work(self, y, c):
        hidden = self.V.shape[1]
        reads = Work(multiplied=self.n * self.R.shape[1])  # each unit's weights from the last hidden layer
        for f in self.net.maps:  # the deeper hidden layers are real-valued and recomputed for each unit
            reads += Work(multiplied=self.n * sum(w.size for w in jax.tree.leaves(f) if w.ndim > 1))
        writes = Work(added=hidden * (int((y != 0).sum()) + (0 if self.M is None else self.n)))
        return context_work(self.U, c) + context_work(self.A, c) + reads + writes


@jax.custom_jvp
def _factored(layer: NADE, own: Float[Array, " n_hidden"], y: Float[Array, " n"]) -> Float[Array, " n"]:
    """`NADE.stepwise` of e + own, for scoring: 1 / (1 + exp(-s)) with exp(-s) as a product of two exponentials.

    One belongs to the code, the other to the row and the unit, and is the same for all samples of the row's code. What
    is left for each of them is a product, a division and the sum over hidden units: four times faster than a sigmoid.
    """
    assert layer.act.logistic is not None
    slope, scale, offset = layer.act.logistic
    G = jnp.exp(-slope * own)

    def one(running, unit):
        y_j, V, M, R = unit
        hidden = 1 / (1 + G * jnp.exp(jnp.clip(-slope * running, -FLAT, FLAT)))
        running = running + y_j * V
        return running if M is None else running + M, jnp.dot(layer.net(scale * hidden + offset), R)

    _, a = lax.scan(one, layer.e, (y, layer.V, layer.M, layer.R))

    def plainly(state):
        # The barrier makes this depend on the loop, out of which XLA would take it, and compute it always.
        own_here, _ = lax.optimization_barrier((own, state[0]))
        return layer.stepwise(layer.e + own_here, y), jnp.asarray(False)

    # Beyond this reach a factor may be infinite or 0 although the product is not. A loop, since under `vmap` it costs
    # nothing where no row needs it, and a condition would compute both.
    far = jnp.max(jnp.abs(slope * own), initial=0.0) > FLAT / 2
    return lax.while_loop(lambda state: state[1], plainly, (a, far))[0]


@_factored.defjvp
def _factored_jvp(primals, tangents):
    return jax.jvp(lambda layer, own, y: layer.stepwise(layer.e + own, y), primals, tangents)

"""The compiled part of training: a step is a pure function of (state, batch), an epoch one program over many."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from darn.config import Training
from darn.model import Stack
from darn.nn import AbstractCausalMap
from darn.objective import DescriptionLength, make_loss
from darn.training._optim import make_optimizer


class TrainState(eqx.Module):
    """All that a step changes. Random numbers follow from seed and epoch, so this is all that resuming needs."""

    params: Any  # the model's float arrays
    opt: optax.OptState
    average: Any  # running mean of params, or None
    price: Float[Array, " L"]  # nats an active unit costs: the multiplier of the sparsity constraint
    step: Int[Array, ""]


class Batch(eqx.Module):
    """Rows as training sees them."""

    x: Float[Array, "B n_x"]
    context: Float[Array, "B n_context"] | None
    keys: PRNGKeyArray  # one a row, so that a batch split over devices draws what it would draw on one


class DeviceRows(eqx.Module):
    """A split as it lies on the device: bits packed eight to a byte, or intensities a byte each."""

    values: Array
    context: Array | None
    n: int = eqx.field(static=True)
    grey: bool = eqx.field(static=True)

    @staticmethod
    def put(rows) -> "DeviceRows":
        """From a `darn.data.Rows`."""
        context = None if rows.context is None else jnp.asarray(rows.context)
        return DeviceRows(jnp.asarray(rows.values), context, rows.n, rows.grey)

    def __len__(self) -> int:
        return self.values.shape[0]

    def batch(self, index: Int[Array, " B"], keys: PRNGKeyArray, draw_key=None) -> Batch:
        """The chosen rows, unpacked; `draw_key`: intensities become fresh bits (dynamic binarisation)."""
        values = self.values[index]
        if not self.grey:
            x = jnp.unpackbits(values, axis=1, count=self.n).astype(jnp.float32)
        else:
            x = values.astype(jnp.float32) / 255
            if draw_key is not None:
                x = (jax.random.uniform(draw_key, x.shape) < x).astype(jnp.float32)
        return Batch(x, None if self.context is None else self.context[index], keys)


def _penalty(model: Stack, config: Training) -> Float[Array, ""]:
    """Weight decay on every weight matrix, L1 on the autoregressive ones."""
    total = jnp.zeros(())
    if config.weight_decay:
        weights = [w for w in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)) if w.ndim > 1]
        total += 0.5 * config.weight_decay * sum(jnp.sum(w * w) for w in weights)
    if config.l1:
        maps = jax.tree.leaves(model, is_leaf=lambda m: isinstance(m, AbstractCausalMap))
        causal = [m for m in maps if isinstance(m, AbstractCausalMap)]
        total += config.l1 * sum((jnp.sum(jnp.abs(m.weights())) for m in causal), start=jnp.zeros(()))
    return total


class Program:
    """A model's training, compiled: holds what does not change (structure, options, optimiser), never the weights."""

    def __init__(self, model: Stack, config: Training, n_train: int, *, dynamic: bool = False):
        self.config = config
        self.batch = min(config.batch, n_train)
        self.steps_per_epoch = max(n_train // self.batch, 1)
        self.dynamic = dynamic
        self.optimizer = make_optimizer(config, self.steps_per_epoch * config.epochs)
        self.loss = make_loss(config.estimator, n_samples=config.n_samples, log_q=config.log_q)
        self.static = eqx.partition(model, eqx.is_inexact_array)[1]
        self.target = config.sparsity * jnp.asarray(model.n_h, jnp.float32) if config.sparsity else None
        self.epochs = jax.jit(self._epochs, donate_argnums=0)
        self.bound = jax.jit(self._bound, static_argnames="n_samples")

    def start(self, model: Stack) -> TrainState:
        """The state before the first step."""
        # A copy, since the state's buffers are donated to the program and the model remains the caller's.
        params = jax.tree.map(jnp.copy, eqx.filter(model, eqx.is_inexact_array))
        average = jax.tree.map(jnp.copy, params) if self.config.average else None
        price = jnp.zeros(model.n_layers)
        return TrainState(params, self.optimizer.init(params), average, price, jnp.zeros((), jnp.int32))

    def model(self, params) -> Stack:
        """The stack with these weights."""
        return eqx.combine(params, self.static)

    def kept(self, state: TrainState) -> Any:
        """The weights to evaluate and keep: the averaged ones, where there are any."""
        return state.params if state.average is None else state.average

    def step(self, state: TrainState, batch: Batch) -> tuple[TrainState, dict[str, Any]]:
        """One update; (the new state, the batch's description length and its parts)."""

        def mean_loss(params):
            model = self.model(params)
            one = lambda x, context, key: self.loss(model, x, context, state.price, key=key)  # noqa: E731
            losses, dl = jax.vmap(one)(batch.x, batch.context, batch.keys)
            return jnp.mean(losses) + _penalty(model, self.config), jax.tree.map(partial(jnp.mean, axis=0), dl)

        grads, dl = jax.grad(mean_loss, has_aux=True)(state.params)
        updates, opt = self.optimizer.update(grads, state.opt, state.params)
        params = optax.apply_updates(state.params, updates)
        average, price = state.average, state.price
        if average is not None:  # a plain mean to begin with, so that the random start is soon forgotten
            decay = jnp.minimum(self.config.average, (1 + state.step) / (10 + state.step))
            average = jax.tree.map(lambda m, w: decay * m + (1 - decay) * w, average, params)
        if self.target is not None:  # dual ascent: too many active units, and each becomes dearer
            price = jnp.maximum(price + 1e-3 * (jnp.stack(dl.active) - self.target) / self.target, 0)
        return TrainState(params, opt, average, price, state.step + 1), _metrics(dl, active=self.target is not None)

    def _epochs(self, state: TrainState, rows: DeviceRows, first, count):
        """`count` epochs from number `first` on, in one program; metrics are means over all their steps."""
        order_key, bits_key, draw_key = jax.random.split(jax.random.key(self.config.seed), 3)
        used = self.steps_per_epoch * self.batch  # the remainder, another one every epoch, sits this epoch out

        def one_step(carry, chosen):
            state, sums = carry
            key = jax.random.fold_in(draw_key, state.step) if self.dynamic else None
            index, keys = chosen
            state, metrics = self.step(state, rows.batch(index, keys, key))
            return (state, jax.tree.map(jnp.add, sums, metrics)), None

        def one_epoch(i, carry):
            order = jax.random.permutation(jax.random.fold_in(order_key, first + i), len(rows))[:used]
            # All the epoch's keys at once: deriving them step by step would be a tenth of a small model's step.
            keys = jax.random.split(jax.random.fold_in(bits_key, first + i), used)
            chosen = tuple(v.reshape(-1, self.batch) for v in (order, keys))
            return lax.scan(one_step, carry, chosen)[0]

        each = (jnp.zeros(()),) * len(state.price)
        zero = _metrics(DescriptionLength(jnp.zeros(()), each, each), active=self.target is not None)
        state, sums = lax.fori_loop(0, count, one_epoch, (state, zero))
        return state, jax.tree.map(lambda s: s / (count * self.steps_per_epoch), sums)

    def _bound(self, params, rows: DeviceRows, n_samples: int):
        """The description length of every row, a mean over n_samples encodings; the same bits at every call."""
        model = self.model(params)
        loss = make_loss("darn", n_samples=n_samples)
        size = max(min(500, len(rows), (1 << 28) // (model.width * n_samples)), 1)
        n_chunks = -(-len(rows) // size)
        price = jnp.zeros(model.n_layers)
        base, draw_base = jax.random.split(jax.random.key(self.config.seed ^ 0xB0))

        def chunk(k):
            index = jnp.minimum(k * size + jnp.arange(size), len(rows) - 1)
            keys = jax.vmap(lambda i: jax.random.fold_in(base, i))(index)
            batch = rows.batch(index, keys, jax.random.fold_in(draw_base, k) if self.dynamic else None)
            return jax.vmap(lambda x, c, k: loss(model, x, c, price, key=k)[1])(batch.x, batch.context, keys)

        dl = lax.map(chunk, jnp.arange(n_chunks))
        dl = jax.tree.map(lambda v: v.reshape(-1, *v.shape[2:])[: len(rows)], dl)
        return _metrics(jax.tree.map(partial(jnp.mean, axis=0), dl))


def _metrics(dl: DescriptionLength, *, active: bool = True) -> dict[str, Any]:
    # Counting active units at every step would cost a kernel of its own, so training does it only where it matters.
    found = {"bound": dl.total, "x_given_h": dl.x_given_h, "h": dl.h}
    return found | {"active": dl.active} if active else found


def to_host(metrics) -> dict[str, Any]:
    """Metrics as plain numbers and lists."""
    return {k: np.asarray(v, np.float64).tolist() for k, v in metrics.items()}

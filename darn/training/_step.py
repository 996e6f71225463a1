"""The compiled part of training: a step is a pure function of (state, batch), an epoch one program over many."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8

from darn.config import Training
from darn.inference.objective import DescriptionLength, make_loss
from darn.model import Stack
from darn.nn import causal_maps
from darn.random import permutation
from darn.training._optim import make_optimizer, make_schedule
from darn.training.weight_noise import WeightNoise

_NOISE = 2**31 - 1  # sets the key of the weights' noise apart from those that `_epochs` derives from the same seed


class TrainState(eqx.Module):
    """All that a step changes. Random numbers follow from seed and epoch, so this is all that resuming needs."""

    params: Any  # the model's float arrays
    opt: optax.OptState
    average: Any  # running mean of params, or None
    price: Float[Array, " L"]  # nats an active unit costs: the multiplier of the sparsity constraint
    step: Int[Array, ""]
    log_sigma: Any = None  # of the noise on the weights, whose means are `params`; None without noise


class Batch(eqx.Module):
    """Rows as training sees them."""

    x: Float[Array, "B n_x"]
    context: Float[Array, "B n_context"] | None
    keys: PRNGKeyArray  # one a row, so that a batch split over devices draws what it would draw on one
    weight: Float[Array, " B"] | None = None  # how much each row counts, 1 in the mean over all rows
    noise_key: PRNGKeyArray | None = None  # of the noise on the weights, one draw for all the batch


def _unpacked(values: UInt8[Array, "B bytes"], n: int) -> Float[Array, "B n"]:
    """Bits as floats. A CPU looks each byte's up: shifting them out at every use costs 5% of MNIST's training step."""
    if jax.default_backend() != "cpu":
        return jnp.unpackbits(values, axis=1, count=n).astype(jnp.float32)
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32)
    return jnp.asarray(bits)[values].reshape(len(values), -1)[:, :n]


class DeviceRows(eqx.Module):
    """A split as it lies on the device: bits packed eight to a byte, or intensities a byte each."""

    values: Array
    context: Array | None
    n: int = eqx.field(static=True)
    grey: bool = eqx.field(static=True)
    weight: Array | None = None

    @staticmethod
    def put(rows) -> "DeviceRows":
        """From a `darn.data.Rows`."""
        context = None if rows.context is None else jnp.asarray(rows.context)
        w = rows.weights
        # One in the mean: the step size must not follow the weights' unit.
        weight = None if w is None else jnp.asarray(w / np.mean(w, dtype=np.float64), jnp.float32)
        return DeviceRows(jnp.asarray(rows.values), context, rows.n, rows.grey, weight)

    def __len__(self) -> int:
        return self.values.shape[0]

    def batch(self, index: Int[Array, " B"], keys: PRNGKeyArray, draw_key=None) -> Batch:
        """The chosen rows, unpacked; `draw_key`: intensities become fresh bits (dynamic binarisation)."""
        values = self.values[index]
        if not self.grey:
            x = _unpacked(values, self.n)
        else:
            x = values.astype(jnp.float32) / 255
            if draw_key is not None:
                x = (jax.random.uniform(draw_key, x.shape) < x).astype(jnp.float32)
        pick = lambda a: None if a is None else a[index]  # noqa: E731
        return Batch(x, pick(self.context), keys, pick(self.weight))


def _mean(value: Float[Array, " B"], weight: Float[Array, " B"] | None) -> Float[Array, ""]:
    """The mean over a batch. Weights are divided by the rows' number, not by their sum, which varies by batch."""
    return jnp.mean(value if weight is None else weight * value, axis=0)


def _asked(value) -> bool:
    """Whether an option is in use; one that differs between the models of a sweep is an array, and always is."""
    return isinstance(value, jax.Array) or bool(value)


def _penalty(model: Stack, config: Training) -> Float[Array, ""]:
    """Weight decay on the weight matrices, L1 on the autoregressive ones."""
    total = jnp.zeros(())
    if _asked(config.weight_decay):
        part = model if config.decay_on == "all" else getattr(model, config.decay_on)
        weights = [w for w in jax.tree.leaves(eqx.filter(part, eqx.is_inexact_array)) if w.ndim > 1]
        total += 0.5 * config.weight_decay * sum(jnp.sum(w * w) for w in weights)
    if _asked(config.l1):
        weights = (m.weights() for m in causal_maps(model))
        total += config.l1 * sum((jnp.sum(jnp.abs(w)) for w in weights), start=jnp.zeros(()))
    return total


def compiling(work: float) -> dict[str, Any] | None:
    """XLA's options for a program of so many multiplications: one that runs for a moment is not worth optimising.

    Compiling is several times faster so, and running as much slower. On a CPU, that is. A GPU is told to run side by
    side what does not depend on each other: a step is some seventy kernels of a few microseconds, most of which leave
    most of it idle (H200, MNIST with 500 units: 94 us a step instead of 123).
    """
    if jax.default_backend() == "gpu":
        return {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}
    if work > 2e9 or jax.default_backend() != "cpu":
        return None
    options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    # JAX 0.11 does without this option, and refuses those that it does not know.
    return options if jax.__version_info__ >= (0, 11) else options | {"xla_cpu_use_fusion_emitters": False}


_PROGRAMS: dict[Any, "Program"] = {}


class Program:
    """A model's training, compiled: holds what does not change (structure, options, optimiser), never the weights."""

    def __init__(self, model: Stack, config: Training, n_train: int, *, dynamic: bool = False):
        self.config = config
        self.batch = min(config.batch, n_train)
        self.steps_per_epoch = max(n_train // self.batch, 1)
        self.dynamic = dynamic
        self.n_steps = self.steps_per_epoch * config.epochs
        self.optimizer = make_optimizer(config, self.n_steps)
        how = {"n_samples": config.n_samples, "log_q": config.log_q, "weighted": config.weighted}
        self.loss = make_loss(config.estimator, **how)
        if config.decay_on not in ("all", "encoder", "decoder"):
            raise ValueError(f"decay_on is all, encoder or decoder, not {config.decay_on!r}")
        noise = config.noise
        self.noise = None if noise == "none" else WeightNoise(model, n_train, noise, config.noise_on)
        self.static = eqx.partition(model, eqx.is_inexact_array)[1]
        self.target = config.sparsity * jnp.asarray(model.n_h, jnp.float32) if _asked(config.sparsity) else None
        weights = sum(w.size for w in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))
        options = compiling(weights * self.batch * self.n_steps)
        self.epochs = jax.jit(self._epochs, donate_argnums=0, compiler_options=options)
        self.bound = jax.jit(self._bound, static_argnames="n_samples", compiler_options=options)

    @staticmethod
    def of(model: Stack, config: Training, n_train: int, *, dynamic: bool = False) -> "Program":
        """A program made before, if one fits, so that the next fold or the next fit need not compile it again."""
        config = dataclasses.replace(config, seed=0)  # callers give the seed with every call
        leaves, structure = jax.tree.flatten(eqx.partition(model, eqx.is_inexact_array)[1])
        if leaves:  # arrays that are not weights: an EoNADE's orders
            return Program(model, config, n_train, dynamic=dynamic)
        key = (structure, model.n_h, config, n_train, dynamic)
        if key not in _PROGRAMS:
            while len(_PROGRAMS) >= 32:
                _PROGRAMS.pop(next(iter(_PROGRAMS)))
            _PROGRAMS[key] = Program(model, config, n_train, dynamic=dynamic)
        return _PROGRAMS[key]

    def start(self, model: Stack) -> TrainState:
        """The state before the first step."""
        # A copy, since the state's buffers are donated to the program and the model remains the caller's.
        params = jax.tree.map(jnp.copy, eqx.filter(model, eqx.is_inexact_array))
        average = jax.tree.map(jnp.copy, params) if _asked(self.config.average) else None
        price = jnp.zeros(model.n_layers)
        log_sigma = None if self.noise is None else self.noise.start(self.config.noise_sigma)
        return TrainState(params, self.optimizer.init(params), average, price, jnp.zeros((), jnp.int32), log_sigma)

    def model(self, params) -> Stack:
        """The stack with these weights."""
        return eqx.combine(params, self.static)

    def kept(self, state: TrainState) -> Any:
        """The weights to evaluate and keep: the averaged ones, where there are any."""
        return state.params if state.average is None else state.average

    def step(self, state: TrainState, batch: Batch) -> tuple[TrainState, dict[str, Any]]:
        """One update; (the new state, the batch's description length and its parts)."""
        # Units that cost before they serve are silenced, and often stay so.
        warm = self._risen(state, self.config.warmup)

        def mean_loss(params):
            model = self.model(params)
            one = lambda x, context, key: self.loss(model, x, context, state.price, warm, key=key)  # noqa: E731
            losses, dl = jax.vmap(one)(batch.x, batch.context, batch.keys)
            parts = jax.tree.map(lambda v: _mean(v, batch.weight), dl)
            return _mean(losses, batch.weight) + _penalty(model, self.config), parts

        log_sigma, share = state.log_sigma, None
        if self.noise is None:
            grads, dl = jax.grad(mean_loss, has_aux=True)(state.params)
        else:
            grads, log_sigma, dl, share = self._with_noise(self.noise, state, batch, warm)
        updates, opt = self.optimizer.update(grads, state.opt, state.params)
        params = optax.apply_updates(state.params, updates)
        average, price = state.average, state.price
        if average is not None:  # a plain mean to begin with, so that the random start is soon forgotten
            decay = jnp.minimum(self.config.average, (1 + state.step) / (10 + state.step))
            average = jax.tree.map(lambda m, w: decay * m + (1 - decay) * w, average, params)
        if self.target is not None:  # dual ascent: too many active units, and each becomes dearer
            price = jnp.maximum(price + 1e-3 * (jnp.stack(dl.active) - self.target) / self.target, 0)
        state = TrainState(params, opt, average, price, state.step + 1, log_sigma)
        return state, _metrics(dl, active=self.target is not None, share=share)

    def _risen(self, state: TrainState, share: float) -> Float[Array, ""] | float:
        """How far what rises from 0 to 1 over this share of the run has come."""
        return jnp.minimum(state.step.astype(jnp.float32) / (share * self.n_steps), 1.0) if share else 1.0

    def _with_noise(self, noise: WeightNoise, state: TrainState, batch: Batch, warm):
        """(gradient in mu, the new log sigma, description length, an example's share of L_C)."""
        if batch.noise_key is None:
            raise ValueError("a step with weight noise needs the batch's noise_key")

        def loss(weights, row: Batch):
            found = self.loss(self.model(weights), row.x, row.context, state.price, warm, key=row.keys)
            return found if row.weight is None else jax.tree.map(lambda v: row.weight * v, found)

        how = self.config.noise_gradient
        rows = dataclasses.replace(batch, noise_key=None)
        # Weights that nothing holds yet would drown in noise and stay there.
        price = self._risen(state, self.config.noise_warmup)
        found = noise.gradients(loss, state.params, state.log_sigma, rows, key=batch.noise_key, how=how, price=price)
        penalty = jax.grad(lambda mu: _penalty(self.model(mu), self.config))(state.params)  # on what will be used
        schedule = make_schedule(self.config, self.n_steps)
        rate = self.config.noise_lr * (schedule(state.step) / self.config.lr)
        log_sigma = noise.descend(state.log_sigma, found.log_sigma, rate)
        return jax.tree.map(jnp.add, found.mu, penalty), log_sigma, found.aux, found.share

    def _epochs(self, state: TrainState, rows: DeviceRows, first, count, seed=None):
        """`count` epochs from number `first` on, in one program; metrics are means over all their steps."""
        seed = self.config.seed if seed is None else seed
        order_key, bits_key, draw_key = jax.random.split(jax.random.key(seed), 3)
        noise_key = jax.random.fold_in(jax.random.key(seed), _NOISE)
        used = self.steps_per_epoch * self.batch  # the remainder, another one every epoch, sits this epoch out

        def one_step(carry, chosen):
            state, sums = carry
            key = jax.random.fold_in(draw_key, state.step) if self.dynamic else None
            index, keys = chosen
            batch = rows.batch(index, keys, key)
            if self.noise is not None:
                batch = dataclasses.replace(batch, noise_key=jax.random.fold_in(noise_key, state.step))
            state, metrics = self.step(state, batch)
            return (state, jax.tree.map(jnp.add, sums, metrics)), None

        def one_epoch(i, carry):
            order = permutation(jax.random.fold_in(order_key, first + i), len(rows))[:used]
            # All the epoch's keys at once: deriving them step by step would be a tenth of a small model's step.
            keys = jax.random.split(jax.random.fold_in(bits_key, first + i), used)
            chosen = tuple(v.reshape(-1, self.batch) for v in (order, keys))
            return lax.scan(one_step, carry, chosen)[0]

        each = (jnp.zeros(()),) * len(state.price)
        none = DescriptionLength(jnp.zeros(()), each, each, jnp.zeros(()) if self.config.weighted else None)
        zero = _metrics(none, active=self.target is not None, share=jnp.zeros(()) if self.noise else None)
        state, sums = lax.fori_loop(0, count, one_epoch, (state, zero))
        return state, jax.tree.map(lambda s: s / (count * self.steps_per_epoch), sums)

    def _bound(self, params, rows: DeviceRows, n_samples: int, seed=None):
        """The mean bound of all rows over n_samples encodings of each; the same bits at every call.

        Where encodings are weighted, as many at a time as in a step.
        """
        model = self.model(params)
        at_once = self.config.n_samples if self.config.weighted else 1
        n_looks = max(n_samples // at_once, 1)
        n_samples = n_looks * at_once
        loss = make_loss("darn", n_samples=at_once, weighted=self.config.weighted)
        size = max(min(500, len(rows), (1 << 28) // (model.row_floats * n_samples)), 1)
        n_chunks = -(-len(rows) // size)
        price = jnp.zeros(model.n_layers)
        seed = self.config.seed if seed is None else seed
        base, draw_base = jax.random.split(jax.random.key(seed ^ 0xB0))

        def chunk(k):
            index = jnp.minimum(k * size + jnp.arange(size), len(rows) - 1)
            keys = jax.vmap(lambda i: jax.random.fold_in(base, i))(index)
            batch = rows.batch(index, keys, jax.random.fold_in(draw_base, k) if self.dynamic else None)

            def look(x, context, key):
                lengths = jax.vmap(lambda k: loss(model, x, context, price, key=k)[1])(jax.random.split(key, n_looks))
                return jax.tree.map(lambda v: jnp.mean(v, axis=0), lengths)

            return jax.vmap(look)(batch.x, batch.context, keys)

        dl = lax.map(chunk, jnp.arange(n_chunks))
        dl = jax.tree.map(lambda v: v.reshape(-1, *v.shape[2:])[: len(rows)], dl)
        return _metrics(jax.tree.map(lambda v: _mean(v, rows.weight), dl))


def _metrics(dl: DescriptionLength, *, active: bool = True, share: Array | None = None) -> dict[str, Any]:
    # Counting active units at every step would cost a kernel of its own, so training does it only where it matters.
    found = {"bound": dl.total, "x_given_h": dl.x_given_h, "h": dl.h} | ({} if share is None else {"noise": share})
    found |= {} if dl.weighted is None else {"weighted": dl.weighted}
    return found | {"active": dl.active} if active else found


def goal(metrics: dict) -> float:
    """What choices between weights go by: the bound, or that of several encodings where the decoder lowers that one."""
    return metrics.get("weighted", metrics["bound"])


def excess(active: list[float], sparsity: float, n_h: Sequence[int]) -> float:
    """By how much more than a twentieth the activity of some layer is above its target; 0 where none is asked for.

    A model that is as sparse as it should be comes before one with a better bound: early in training, before the price
    has risen, the code is dense and the bound is low.
    """
    if not sparsity:
        return 0.0
    return max(0.0, float(np.max(np.asarray(active) / (sparsity * np.asarray(n_h)))) - 1.05)


def to_host(metrics) -> dict[str, Any]:
    """Metrics as plain numbers and lists."""
    return {k: np.asarray(v, np.float64).tolist() for k, v in metrics.items()}

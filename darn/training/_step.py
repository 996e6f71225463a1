"""The compiled part of training: a step is a pure function of (state, hyper, batch); an epoch is one program."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from darn.batching import row_keys
from darn.config import Training
from darn.devices import WHOLE
from darn.errors import DarnError
from darn.inference.objective import DescriptionLength, make_loss
from darn.model import Stack
from darn.nn import causal_maps
from darn.training._hyper import Hyper, Terms, shared
from darn.training._metrics import metrics_of
from darn.training._optim import BY_WEIGHT, make_optimizer, make_schedule
from darn.training._order import order_of
from darn.training._rows import Batch, DeviceRows, mean_of_rows
from darn.training._share import Share, divided
from darn.training.weight_noise import WeightNoise

_NOISE = 2**31 - 1  # separates the key of the weight noise from the keys that `_epochs` derives from the same seed


class TrainState(eqx.Module):
    """A model in training. Random numbers depend only on seed and epoch, so this is all that resuming needs."""

    params: Any  # the model's float arrays
    opt: optax.OptState
    average: Any  # running mean of params, or None
    price: Float[Array, "*K L"]  # nats charged per active unit: the multiplier of the sparsity constraint
    step: Int[Array, "*K"]
    log_sigma: Any = None  # of the noise on the weights, whose means are `params`; None without noise
    fixed: Any = None  # the model's arrays that no step changes, such as the orders of an EoNADE


def penalty(model: Stack, hyper: Hyper, terms: Terms, decay_on: str = "all") -> Float[Array, ""]:
    """Weight decay on the weight matrices, L1 on the autoregressive ones."""
    total = jnp.zeros(())
    if terms.weight_decay:
        part = model if decay_on == "all" else getattr(model, decay_on)
        weights = [w for w in jax.tree.leaves(eqx.filter(part, eqx.is_inexact_array)) if w.ndim > 1]
        total += 0.5 * hyper.weight_decay * sum(jnp.sum(w * w) for w in weights)
    if terms.l1:
        total += hyper.l1 * sum((jnp.sum(jnp.abs(m.weights())) for m in causal_maps(model)), start=jnp.zeros(()))
    return total


def compiling(work: float) -> dict[str, Any] | None:
    """XLA's options for a program with this many multiplications.

    On a CPU, a short program is not optimised: it compiles several times faster and runs as much slower. On a GPU,
    independent kernels run concurrently: a step is about seventy kernels of a few microseconds, most of which leave
    most of the device idle (H200, MNIST with 500 units: 94 us per step instead of 123).
    """
    if jax.default_backend() == "gpu":
        return {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}
    if work > 2e9 or jax.default_backend() != "cpu":
        return None
    options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    # JAX 0.11 no longer has this option, and rejects unknown ones.
    return options if jax.__version_info__ >= (0, 11) else options | {"xla_cpu_use_fusion_emitters": False}


def steps_a_block() -> int:
    """How many steps to take in a loop of known length before asking whether there are more.

    On a GPU, the host waits for the answer of the device before it launches the next step. A CPU has it at once.
    """
    return 1 if jax.default_backend() == "cpu" else 32


def split_model(model: Stack) -> tuple[Any, Any, Any]:
    """Splits a model into (weights, arrays that are not trained, the rest); `eqx.combine` is the inverse."""
    params, rest = eqx.partition(model, eqx.is_inexact_array)
    fixed, static = eqx.partition(rest, lambda leaf: isinstance(leaf, jax.Array | np.ndarray))
    return params, fixed, static


@jax.jit
def copied(tree: Any) -> Any:
    """The same arrays in buffers of their own."""
    return jax.tree.map(jnp.copy, tree)


@partial(jax.jit, donate_argnums=0, keep_unused=True)
def copied_over(old: Any, new: Any) -> Any:
    """`copied(new)` in the buffers of `old`: a GPU records its launches anew whenever arrays lie somewhere else."""
    return jax.tree.map(jnp.copy, new)


_PROGRAMS: dict[Any, "Program"] = {}


class Program:
    """The compiled training of one model, or of several models of one shape.

    It holds what does not change (structure, options, optimiser), never weights or hyper-parameters. With `n_models`,
    every state, `Hyper` and metric has a leading axis over the models. A single model has no such axis, which would
    make a CPU's matrix products slower.
    """

    def __init__(
        self,
        model: Stack,
        config: Training,
        n_train: int,
        *,
        terms: Terms | None = None,
        n_models: int | None = None,
        dynamic: bool = False,
        mesh: Mesh | None = None,
        shard_weights: bool = False,
    ):
        """Compiles nothing yet.

        Args:
            model: one of the models; its structure and shapes count, not its weights.
            config: what the models have in common; its hyper-parameters (`Hyper`) are not read.
            n_train: rows of the training split.
            terms: optional terms of the loss and the state; by default those that `config` uses.
            n_models: how many models there are side by side; None for one without an axis.
            dynamic: whether grey rows are binarised again at every step.
            mesh: devices that share every batch; state, hyper-parameters and rows are then given on this mesh.
            shard_weights: whether they also share the weights and the optimiser's state of a single model; the state is
                then given as `specs` say.
        """
        self.config = shared(config)
        self.terms = Terms.of([config]) if terms is None else terms
        self.several = n_models is not None
        self.batch = min(config.batch, n_train)
        self.share = Share(mesh)
        if self.share.n > self.batch:
            raise DarnError(
                f"a batch of {self.batch} rows cannot be shared by {self.share.n} devices: use at most as many devices "
                "as a batch has rows"
            )
        self.steps_per_epoch = max(n_train // self.batch, 1)
        self.n_steps = self.steps_per_epoch * config.epochs
        self.dynamic = dynamic
        self.loss = make_loss(
            config.estimator, n_samples=config.n_samples, log_q=config.log_q, weighted=config.weighted
        )
        make_optimizer(config.optimizer, 1.0)  # an unknown name is refused here
        noise = config.noise
        self.noise = None if noise == "none" else WeightNoise(model, n_train, noise, config.noise_on)
        self.n_h, self.static = model.n_h, split_model(model)[2]
        weights = sum(w.size for w in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))
        options = compiling(weights * self.batch * self.n_steps * (n_models or 1))
        # As one program: otherwise every shape of an array would compile several small ones.
        self.start = jax.jit(self._over_models(self._start, 0), compiler_options=compiling(0))
        self.sharded = shard_weights and mesh is not None
        self.specs: Any = self.divided(model, config, self.share.n) if self.sharded else WHOLE
        epochs = self.share.over(self._over_models(self._epochs, 3), 2, self.specs, (self.specs, WHOLE))
        self.epochs = jax.jit(epochs, donate_argnums=0, compiler_options=options)
        carry = (self.specs, WHOLE)
        steps = self.share.over(self._over_models(self._steps, 5), 4, carry, carry)
        self.steps = jax.jit(steps, donate_argnums=0, compiler_options=options)
        self.bound = jax.jit(self._bounds, static_argnames="n_samples", compiler_options=options)

    @staticmethod
    def of(
        model: Stack,
        config: Training,
        n_train: int,
        *,
        terms: Terms | None = None,
        n_models: int | None = None,
        dynamic: bool = False,
        mesh: Mesh | None = None,
        shard_weights: bool = False,
    ) -> "Program":
        """An existing program, if one fits, so that the next fold or fit need not compile it again."""
        terms = Terms.of([config]) if terms is None else terms
        leaves, structure = jax.tree.flatten(model)
        shapes = tuple((w.shape, np.dtype(w.dtype)) for w in leaves)
        more: dict[str, Any] = {"terms": terms, "n_models": n_models, "dynamic": dynamic, "mesh": mesh}
        more["shard_weights"] = shard_weights
        key = (structure, shapes, shared(config), n_train, *more.values())
        if key not in _PROGRAMS:
            while len(_PROGRAMS) >= 32:
                _PROGRAMS.pop(next(iter(_PROGRAMS)))
            _PROGRAMS[key] = Program(model, config, n_train, **more)
        return _PROGRAMS[key]

    def _over_models(self, f: Callable, n_shared: int) -> Callable:
        """`f(state, hyper, ...)` for every model; its last `n_shared` arguments are the same for all."""
        return jax.vmap(f, (0, 0, *[None] * n_shared)) if self.several else f

    def _start(self, model: Stack, hyper: Hyper) -> TrainState:
        """The state before the first step."""
        # A copy, because the state's buffers are donated to the program and the model still belongs to the caller.
        params, fixed, _ = split_model(copied(model))
        average = jax.tree.map(jnp.copy, params) if self.terms.average else None
        log_sigma = None if self.noise is None else self.noise.start(self.config.noise_sigma)
        opt = self._optimizer(hyper).init(params)
        return TrainState(params, opt, average, jnp.zeros(len(self.n_h)), jnp.zeros((), jnp.int32), log_sigma, fixed)

    def divided(self, model: Stack, config: Training, n: int) -> TrainState:
        """How n devices that share the weights divide each array of the state."""
        if self.several:
            raise DarnError("the weights of models that are trained side by side cannot be sharded: leave it out")
        if config.optimizer not in BY_WEIGHT:
            raise DarnError(
                f"the optimizer {config.optimizer} does not treat every weight by itself, so its state cannot be "
                f"sharded: use {', '.join(BY_WEIGHT)}"
            )
        shapes = jax.eval_shape(self._start, model, Hyper.of(config))
        whole = jax.tree.map(lambda _: WHOLE, shapes)
        specs = jax.tree.map(lambda v: divided(v.shape, n), shapes)
        return dataclasses.replace(specs, price=whole.price, step=whole.step, fixed=whole.fixed)

    def whole(self, tree: Any, name: str) -> Any:
        """The part of the state with this name, or arrays like it, whole on every device."""
        return self.share.whole(tree, getattr(self.specs, name)) if self.sharded else tree

    def own(self, tree: Any, name: str) -> Any:
        """This device's share of whole arrays that are like the part of the state with this name."""
        return self.share.own(tree, getattr(self.specs, name)) if self.sharded else tree

    def _optimizer(self, hyper: Hyper) -> optax.GradientTransformation:
        return make_optimizer(self.config.optimizer, self._schedule(hyper), hyper.momentum)

    def _schedule(self, hyper: Hyper) -> Callable:
        return make_schedule(self.config.schedule, hyper.lr, self.n_steps)

    def model(self, params: Any, fixed: Any = None) -> Stack:
        """The stack with these weights; `fixed` holds its other arrays, if it has any."""
        return eqx.combine(params, self.static if fixed is None else eqx.combine(fixed, self.static))

    def kept(self, state: TrainState) -> Any:
        """The weights to evaluate and keep: the averaged ones, if there are any."""
        return state.params if state.average is None else state.average

    @property
    def kept_specs(self) -> Any:
        """How the weights to keep are divided over the mesh."""
        return self.kept(self.specs) if self.sharded else WHOLE

    def step(self, state: TrainState, hyper: Hyper, batch: Batch) -> tuple[TrainState, dict[str, Any]]:
        """One update of one model; returns (the new state, the batch's description length and its parts)."""
        # Units that are charged before they are useful are switched off, and often stay so.
        warm = self._ramp(state.step, self.config.warmup, self.config.warmup_steps)
        weights = self.whole(state.params, "params")

        def mean(value):
            return mean_of_rows(value, batch.weight, self.share.scale(self.batch))

        def mean_loss(params):
            model = self.model(params, state.fixed)
            one = lambda x, context, key: self.loss(model, x, context, state.price, warm, key=key)  # noqa: E731
            losses, dl = jax.vmap(one)(batch.x, batch.context, batch.keys)
            return mean(losses) + self._penalty(model, hyper), jax.tree.map(mean, dl)

        log_sigma, noise_cost = state.log_sigma, None
        if self.noise is None:
            grads, dl = self.share.mean(jax.grad(mean_loss, has_aux=True)(weights))
        else:
            noisy = dataclasses.replace(state, params=weights, log_sigma=self.whole(log_sigma, "log_sigma"))
            grads, log_sigma, dl, noise_cost = self._with_noise(self.noise, noisy, hyper, batch, warm)
            log_sigma = self.own(log_sigma, "log_sigma")
        if self.config.clip:
            grads, _ = optax.clip_by_global_norm(self.config.clip).update(grads, optax.EmptyState())
        grads = self.own(grads, "params")
        updates, opt = self._optimizer(hyper).update(grads, state.opt, state.params)
        params = optax.apply_updates(state.params, updates)
        average, price = state.average, state.price
        if self.terms.average:  # a plain mean at first, so that the random start is soon forgotten
            decay = jnp.minimum(hyper.average, (1 + state.step) / (10 + state.step))
            average = jax.tree.map(lambda m, w: decay * m + (1 - decay) * w, average, params)
        if self.terms.sparsity:  # dual ascent: with too many active units, the price of each rises
            target = hyper.sparsity * jnp.asarray(self.n_h, jnp.float32)
            price = jnp.maximum(price + 1e-3 * (jnp.stack(dl.active) - target) / target, 0)
        state = TrainState(params, opt, average, price, state.step + 1, log_sigma, state.fixed)
        return state, metrics_of(dl, active=self.terms.sparsity, noise=noise_cost)

    def _penalty(self, model: Stack, hyper: Hyper) -> Float[Array, ""]:
        return penalty(model, hyper, self.terms, self.config.decay_on)

    def _ramp(self, step: Int[Array, ""], fraction: float, steps: int = 0) -> Float[Array, ""] | float:
        """Rises from 0 to 1 over this fraction of the run, or over so many steps; 1 throughout if both are 0."""
        length = steps or fraction * self.n_steps
        return jnp.minimum(step.astype(jnp.float32) / length, 1.0) if length else 1.0

    def _with_noise(self, noise: WeightNoise, state: TrainState, hyper: Hyper, batch: Batch, warm):
        """Returns (gradient in mu, new log sigma, description length, cost of the weights in nats per row)."""
        if batch.noise_key is None:
            raise ValueError("a step with weight noise needs the batch's noise_key")
        model = lambda weights: self.model(weights, state.fixed)  # noqa: E731

        def loss(weights, row: Batch):
            result = self.loss(model(weights), row.x, row.context, state.price, warm, key=row.keys)
            return result if row.weight is None else jax.tree.map(lambda v: row.weight * v, result)

        result = noise.gradients(
            loss,
            state.params,
            state.log_sigma,
            dataclasses.replace(batch, noise_key=None),
            key=batch.noise_key,
            how=self.config.noise_gradient,
            # Weights that have not learned anything yet would be drowned in noise for good.
            cost_weight=self._ramp(state.step, self.config.noise_warmup),
            scale=self.share.scale(self.batch),
        )
        result = self.share.mean(result)
        on_means = jax.grad(lambda mu: self._penalty(model(mu), hyper))(state.params)  # on the means, which are used
        rate = self.config.noise_lr * (self._schedule(hyper)(state.step) / hyper.lr)
        log_sigma = noise.descend(state.log_sigma, result.log_sigma, rate)
        return jax.tree.map(jnp.add, result.mu, on_means), log_sigma, result.aux, result.cost

    def _one_step(self, hyper: Hyper) -> Callable:
        """step(rows, (state, sums of metrics), (places of a batch in the rows, its keys)), as `scan` takes it."""
        draw_key = jax.random.split(jax.random.key(hyper.seed), 3)[2]
        noise_key = jax.random.fold_in(jax.random.key(hyper.seed), _NOISE)

        def step(rows, carry, chosen):
            state, sums = carry
            index, keys = chosen
            batch = rows.batch(index, keys, self._uniform(draw_key, state.step, self.batch, rows.n))
            padding = self.share.weight(self.batch)
            if padding is not None:
                batch = dataclasses.replace(batch, weight=padding if batch.weight is None else padding * batch.weight)
            if self.noise is not None:
                batch = dataclasses.replace(batch, noise_key=jax.random.fold_in(noise_key, state.step))
            state, metrics = self.step(state, hyper, batch)
            return (state, jax.tree.map(jnp.add, sums, metrics)), None

        return step

    def _no_sums(self) -> dict[str, Any]:
        each = (jnp.zeros(()),) * len(self.n_h)
        none = DescriptionLength(jnp.zeros(()), each, each, jnp.zeros(()) if self.config.weighted else None)
        return metrics_of(none, active=self.terms.sparsity, noise=jnp.zeros(()) if self.noise else None)

    def no_sums(self, shape: tuple[int, ...]) -> dict[str, Any]:
        """The sums of metrics before the first step, on the host; `shape` is () for one model, (K,) for several."""
        return jax.tree.map(lambda v: np.zeros((*shape, *v.shape), v.dtype), jax.eval_shape(self._no_sums))

    def _epochs(self, state: TrainState, hyper: Hyper, rows: DeviceRows, first, count):
        """`count` epochs from number `first`, in one program; metrics are means over all their steps."""
        bits_key = jax.random.split(jax.random.key(hyper.seed), 3)[1]
        used = self.steps_per_epoch * self.batch  # the remainder, a different one each time, is dropped this epoch
        step = self._one_step(hyper)

        def one_epoch(i, carry):
            order = order_of(hyper.seed, first + i, len(rows))[:used]
            # All keys of the epoch at once: deriving them step by step takes a tenth of a small model's step.
            keys = jax.random.split(jax.random.fold_in(bits_key, first + i), used)
            order, keys = (self.share.of(v.reshape(-1, self.batch), axis=1) for v in (order, keys))
            here, index = self.share.fetch(rows, order)
            return lax.scan(partial(step, here), carry, (index, keys))[0]

        state, sums = lax.fori_loop(0, count, one_epoch, (state, self._no_sums()))
        return state, jax.tree.map(lambda s: s / (count * self.steps_per_epoch), sums)

    def _steps(self, carry: tuple[TrainState, Any], hyper: Hyper, rows: DeviceRows, epoch, start, first, count):
        """`count` steps of an epoch whose rows come in chunks, as `_epochs` takes them; returns (state, sums).

        Args:
            carry: (state, sums of the metrics in this epoch).
            hyper: as for `step`.
            rows: a chunk: the rows of some steps, one batch after another, as this device takes its part of each.
            epoch: the number of the epoch.
            start: the number of the chunk's first step in the epoch.
            first: the first step to take, from the start of the chunk.
            count: how many to take.
        """
        bits_key = jax.random.split(jax.random.key(hyper.seed), 3)[1]
        each = self.share.each(self.batch)
        held = rows.values.shape[0] // each
        index = jnp.arange(held * each).reshape(held, each)
        numbers = jnp.uint32(start * self.batch) + jnp.arange(held * self.batch, dtype=jnp.uint32)
        keys = row_keys(jax.random.fold_in(bits_key, epoch), numbers)  # those of `split`
        keys = self.share.of(keys.reshape(held, self.batch), axis=1)
        step = self._one_step(hyper)
        one = lambda i, carry: step(rows, carry, (index[i], keys[i]))[0]  # noqa: E731
        end = first + count
        if (size := steps_a_block()) > 1:
            block = lambda b, carry: lax.fori_loop(0, size, lambda i, c: one(first + b * size + i, c), carry)  # noqa: E731
            carry = lax.fori_loop(0, count // size, block, carry)
            first = first + count // size * size
        return lax.fori_loop(first, end, one, carry)

    def _uniform(self, key, number, count: int, n: int) -> Float[Array, "B n"] | None:
        """The random numbers that binarise this device's rows of batch `number` of `count` rows; None if none do."""
        if not self.dynamic:
            return None
        return self.share.of(jax.random.uniform(jax.random.fold_in(key, number), (count, n)))

    def _bounds(self, state: TrainState, hyper: Hyper, rows: DeviceRows, first=0, *, n_samples: int) -> dict[str, Any]:
        bound = self._over_models(partial(self._bound, n_samples=n_samples), 2)
        return self.share.over(bound, 1, self.specs)(state, hyper, rows, first)

    def _bound(self, state: TrainState, hyper: Hyper, rows: DeviceRows, first, n_samples: int) -> dict[str, Any]:
        """The mean bound of all rows over n_samples encodings of each; every call draws the same bits.

        The rows are numbered from `first` on: validation rows may come in parts.

        With weighted encodings, each bound uses as many of them as a step.
        """
        kept = self.whole(self.kept(state), "params" if state.average is None else "average")
        model = self.model(kept, state.fixed)
        at_once = self.config.n_samples if self.config.weighted else 1
        n_repeats = max(n_samples // at_once, 1)
        n_samples = n_repeats * at_once
        loss = make_loss("darn", n_samples=at_once, weighted=self.config.weighted, validating=True)
        size = max(min(500, len(rows), (1 << 28) // (model.row_floats * n_samples)), 1)
        n_chunks = -(-len(rows) // size)
        free = jnp.zeros(model.n_layers)  # active units are not charged
        base, draw_base = jax.random.split(jax.random.key(hyper.seed ^ 0xB0))

        number = self.share.of(jnp.arange(n_chunks * size).reshape(n_chunks, size), axis=1)
        index = jnp.minimum(number, len(rows) - 1)
        here, places = self.share.fetch(rows, index)

        def chunk(chosen):
            k, index, places = chosen
            keys = jax.vmap(lambda i: jax.random.fold_in(base, i))(first + index)
            batch = here.batch(places, keys, self._uniform(draw_base, k, size, rows.n))

            def one(x, context, key):
                lengths = jax.vmap(lambda k: loss(model, x, context, free, key=k)[1])(jax.random.split(key, n_repeats))
                return jax.tree.map(lambda v: jnp.mean(v, axis=0), lengths)

            return jax.vmap(one)(batch.x, batch.context, keys)

        dl = lax.map(chunk, (jnp.arange(n_chunks), index, places))
        dl = jax.tree.map(lambda v: v.reshape(-1, *v.shape[2:]), dl)
        if self.share.mesh is None:
            return metrics_of(jax.tree.map(lambda v: mean_of_rows(v[: len(rows)], rows.weight), dl))
        counted, once = number < len(rows), self.share.weight(size)
        weight = (counted if once is None else counted & (once > 0)[None]).astype(jnp.float32).reshape(-1)
        weight = weight if here.weight is None else weight * here.weight
        scale = self.share.n * weight.size / len(rows)
        return metrics_of(self.share.mean(jax.tree.map(lambda v: mean_of_rows(v, weight, scale), dl)))

"""Many models in one compiled program: `vmap` over stacked weights, early stopping each.

Fields that change no program (`SCALARS`) are arrays over the models; numbers of units are made equal by padding
(`_pad`); models that differ in anything else go into different programs. Models that have stopped stay in their
program, frozen, until half of it has stopped; then the others move into a smaller one.
"""

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darn.model import Stack
from darn.training._checkpoint import checkpoint_host, load_checkpoint, save_checkpoint
from darn.training._loop import CALL_SECONDS, _ctrl_c, _is_random
from darn.training._pad import pad, unpad
from darn.training._step import DeviceRows, Program, excess, goal, to_host

SCALARS = ("lr", "momentum", "weight_decay", "l1", "average", "sparsity", "seed")
UNITS = ("n_h", "n_d", "encoder_d", "decoder_d")
_LOOKS = ("checkpoint_every",)  # changes nothing that is computed

# ---------------------------------------------------------------- which models share a program


@dataclass(frozen=True)
class Group:
    """Models that one program trains: their numbers, and a config with as many units as the largest of each."""

    members: tuple[int, ...]
    padded: Any


def _program_key(config) -> tuple:
    """What must be equal for two models to fit into one program, however they are padded."""
    every = vars(config.architecture) | vars(config.training)
    values = {k: v for k, v in every.items() if k not in (*SCALARS, *_LOOKS)}
    # Where units that are not there would still count: the sparsity term's target is a share of the units, weight
    # noise has a price for every weight, an EoNADE's orders are over all its units.
    may_pad = values["noise"] == "none" and values["prior"] != "eonade" and not config.training.sparsity
    if may_pad:
        values |= {k: None if values[k] is None else len(values[k]) for k in UNITS}
    return tuple(sorted((k, repr(v)) for k, v in values.items()))


def _largest(configs) -> Any:
    """The config with the most units of every kind."""

    def most(name):
        values = [c.value(name) for c in configs]
        return None if values[0] is None else tuple(map(max, zip(*values)))

    return configs[0].replace(**{k: most(k) for k in UNITS})


Make = Callable[[Any, Any], Stack]  # the fresh stack of (config, key)


def _shapes(make: Make, config) -> Stack:
    """The stack of a config, as shapes without values."""
    return eqx.filter_eval_shape(lambda key: make(config, key), jax.random.key(0))


def _counter(make: Make) -> Callable[[Any], int]:
    """The number of weights of a config; each shape is looked at once."""
    known: dict[tuple, int] = {}

    def n_weights(config) -> int:
        units = tuple(config.value(k) for k in UNITS)
        if units not in known:
            known[units] = sum(math.prod(w.shape) for w in jax.tree.leaves(_shapes(make, config)))
        return known[units]

    return n_weights


def _merged(groups: list[Group], programs: int, n_weights: Callable[[Any], int]) -> list[Group]:
    """At most so many groups, put together pair by pair where that costs the fewest padded weights."""
    cost = lambda g: len(g.members) * n_weights(g.padded)  # noqa: E731
    while len(groups) > programs:
        pairs = itertools.combinations(groups, 2)
        merged = [(a, b, Group(a.members + b.members, _largest([a.padded, b.padded]))) for a, b in pairs]
        a, b, both = min(merged, key=lambda m: cost(m[2]) - cost(m[0]) - cost(m[1]))
        groups = [g for g in groups if g is not a and g is not b] + [both]
    return groups


def plan(configs: Sequence[Any], make: Make, *, programs: int | None = None) -> list[Group]:
    """Groups of models that share a program.

    Every distinct number of units begins as a group; then, while a kind of model has more than `programs` groups, those
    two are merged that cost the fewest padded weights. None: no padding.
    """
    by_key: dict[tuple, dict[tuple, list[int]]] = {}
    for i, c in enumerate(configs):
        shape = tuple(c.value(k) for k in UNITS)
        by_key.setdefault(_program_key(c), {}).setdefault(shape, []).append(i)
    found = []
    for shapes in by_key.values():
        groups = [Group(tuple(m), configs[m[0]]) for m in shapes.values()]
        if programs is not None:
            groups = _merged(groups, programs, _counter(make))
        found += [Group(tuple(sorted(g.members)), g.padded) for g in groups]
    return found


# ---------------------------------------------------------------- the program of one group


class Stacked(eqx.Module):
    """The models of a program, a leading axis over them."""

    state: Any  # TrainState
    best: Any  # the best weights so far by validation
    fixed: Any  # arrays that are not trained: the orders of an EoNADE
    hyper: dict[str, Any]  # fields that differ between the models


class ManyPrograms:
    """`Program` over stacked models; one model alone goes without the axis."""

    def __init__(self, config, varying: tuple[str, ...], n_train: int, *, alone: bool, dynamic: bool):
        self.config, self.varying = config, varying
        self.n_train, self.alone, self.dynamic = n_train, alone, dynamic
        self.steps_per_epoch = max(n_train // min(config.batch, n_train), 1)
        self.epochs = jax.jit(self._epochs, donate_argnums=0)
        self.bound = jax.jit(self._bound, static_argnames="n_samples")
        self.keep = jax.jit(self._keep, donate_argnums=0)

    def _over_models(self, f):
        if not self.alone:
            return jax.vmap(f)
        # A batch axis of one would send a CPU's matrix products down a slower path.
        first = lambda tree: jax.tree.map(lambda w: w[0], tree)  # noqa: E731
        return lambda *trees: jax.tree.map(lambda w: w[None], f(*map(first, trees)))

    def _program(self, params, fixed: Stack, hyper) -> Program:
        """The program of one model inside the trace, where its varying fields are arrays."""
        model = eqx.combine(params, fixed)
        return Program(model, dataclasses.replace(self.config, **hyper), self.n_train, dynamic=self.dynamic)

    def _epochs(self, stacked: Stacked, rows: DeviceRows, first, count):
        def one(state, fixed, hyper):
            return self._program(state.params, fixed, hyper)._epochs(state, rows, first, count)

        state, metrics = self._over_models(one)(stacked.state, stacked.fixed, stacked.hyper)
        return dataclasses.replace(stacked, state=state), metrics

    def _bound(self, stacked: Stacked, rows: DeviceRows, n_samples: int):
        def one(state, fixed, hyper):
            program = self._program(state.params, fixed, hyper)
            return program._bound(program.kept(state), rows, n_samples)

        return self._over_models(one)(stacked.state, stacked.fixed, stacked.hyper)

    def _keep(self, stacked: Stacked, better):
        """The present weights become the best ones of the models that are `better` than before."""
        kept = stacked.state.params if stacked.state.average is None else stacked.state.average
        mask = lambda w: better.reshape(-1, *[1] * (w.ndim - 1))  # noqa: E731
        best = jax.tree.map(lambda new, old: jnp.where(mask(new), new, old), kept, stacked.best)
        return dataclasses.replace(stacked, best=best)

    def stack(self, models: Sequence[Stack], configs: Sequence[Any]) -> Stacked:
        """Fresh models of equal shapes, with their varying fields, ready to train."""
        together = jax.tree.map(lambda *w: jnp.asarray(np.stack(w)), *models)
        params, fixed = eqx.partition(together, eqx.is_inexact_array)
        kind = {"seed": jnp.int32}
        hyper = {k: jnp.asarray([c.value(k) for c in configs], kind.get(k, jnp.float32)) for k in self.varying}
        start = jax.vmap(lambda fixed, hyper, params: self._program(params, fixed, hyper).start(params))
        return Stacked(start(fixed, hyper, params), jax.tree.map(jnp.copy, params), fixed, hyper)


# ---------------------------------------------------------------- training


@dataclass
class Record:
    """How one model of a sweep has fared."""

    bound: float = math.inf  # the best validation bound, nats
    epoch: int = 0  # its epoch
    excess: float = math.inf  # by how much its code is denser than asked for
    epochs: int = 0  # epochs trained
    since: int = 0  # looks without improvement
    seconds: float = 0.0  # of training, shared evenly among the models of a program
    done: bool = False
    diverged: bool = False  # the loss became infinite or no number
    history: list[dict] = field(default_factory=list, repr=False)

    def look(self, epoch: int, train: dict, valid: dict, step: int, patience: int, dense: float = 0.0) -> bool:
        """Notes a validation; whether it is the best so far."""
        self.epochs = epoch
        self.history.append({"epoch": epoch, "step": step, "train": train, "valid": valid})
        better = (dense, goal(valid)) < (self.excess, self.bound)
        self.since = 0 if better else self.since + 1
        if better:
            self.bound, self.epoch, self.excess = goal(valid), epoch, dense
        # without a finite bound on validation nothing can be chosen any more
        self.diverged = not (math.isfinite(valid["bound"]) and math.isfinite(train["bound"]))
        self.done = self.diverged or bool(patience and self.since >= patience)
        return better


def _of_model(metrics: dict[str, Any], i: int) -> dict[str, Any]:
    return {k: np.asarray(v)[..., i].tolist() for k, v in metrics.items()}


Fresh = Callable[[int], Stack]  # the untrained model of a number
Finish = Callable[[int, Stack, Record], None]  # takes a model when it has stopped


def train_group(
    group: Group,
    configs: Sequence[Any],
    make: Make,
    fresh: Fresh,
    train: Any,
    valid: Any,
    *,
    finish: Finish,
    finished: Sequence[int] = (),
    width: int | None = None,
    checkpoint: Path | None = None,
    dynamic: bool = False,
    progress: Callable[[dict[int, Record], int], None] | None = None,
) -> bool:
    """Trains the models of a group, `width` at a time (default: all at once); False if Ctrl-C ended it early.

    `finish` is called once for every model, with its best weights by validation; models in `finished` are left out.
    With a `checkpoint`, an interrupted group goes on from there as if never stopped.
    """
    members = list(group.members)
    width = len(members) if width is None else width
    alone = width == 1
    varying = tuple(k for k in SCALARS if len({configs[i].value(k) for i in members}) > 1)
    many = ManyPrograms(group.padded.training, varying, len(train), alone=alone, dynamic=dynamic)
    rows = DeviceRows.put(train), DeviceRows.put(valid)
    with _ctrl_c() as pressed:
        for k in range(0, len(members), width):
            batch = members[k : k + width]
            if set(batch) <= set(finished):
                continue
            loop = _Loop(many, group.padded, configs, make, fresh, rows, finish, checkpoint)
            if not loop.run(batch, pressed, progress):
                return False
    return True


class _Loop:
    """Epochs, validations and early stopping of one stack of models."""

    def __init__(self, many, padded, configs, make, fresh, rows, finish, checkpoint):
        self.many, self.padded, self.configs, self.make, self.fresh = many, padded, configs, make, fresh
        self.train, self.valid = rows
        self.finish, self.checkpoint = finish, checkpoint

    def _start(self, batch: list[int]):
        """(stacked, members in it, records, epoch): from the beginning, or from the checkpoint of these models."""
        models = {i: self.fresh(i) for i in batch}
        shapes = _shapes(self.make, self.padded)
        self.small = {i: jax.tree.map(lambda w: jax.ShapeDtypeStruct(w.shape, w.dtype), m) for i, m in models.items()}
        stack = lambda ids: self.many.stack(  # noqa: E731
            [pad(models[i], shapes) for i in ids], [self.configs[i] for i in ids]
        )
        host = checkpoint_host(self.checkpoint) if self.checkpoint is not None and self.checkpoint.exists() else None
        if host is None or host["batch"] != batch:
            return stack(batch), list(batch), {i: Record() for i in batch}, 0
        stacked, host = load_checkpoint(self.checkpoint, stack(host["members"]))  # type: ignore[arg-type]
        records = {int(i): Record(**r) for i, r in host["records"].items()}
        return stacked, host["members"], records, host["epoch"]

    def run(self, batch: list[int], pressed, progress) -> bool:
        config, many = self.padded.training, self.many
        stacked, members, records, epoch = self._start(batch)
        n_valid = max(1, 5000 // len(self.valid)) if _is_random(self.fresh(batch[0])) else 1
        group, saved, sums, seen, compiled = 1, time.monotonic(), None, 0, False
        running = lambda: [i for i in members if not records[i].done]  # noqa: E731
        while epoch < config.epochs and running():
            to_validation = config.validate_every - epoch % config.validate_every
            count = min(group, to_validation, config.epochs - epoch)
            began = time.monotonic()
            stacked, metrics = many.epochs(stacked, self.train, jnp.asarray(epoch), jnp.asarray(count))
            metrics = {k: np.asarray(v) for k, v in to_host(metrics).items()}
            took = time.monotonic() - began
            if compiled:
                for i in running():
                    records[i].seconds += took / len(running())
                group = max(1, round(count * min(CALL_SECONDS / took, 4)))
            compiled = True
            epoch, seen = epoch + count, seen + count
            sums = {k: v * count + (0 if sums is None else sums[k]) for k, v in metrics.items()}
            looked = epoch % config.validate_every == 0 or epoch == config.epochs
            if looked:
                measured = to_host(many.bound(stacked, self.valid, n_samples=n_valid))
                means = {k: v / seen for k, v in sums.items()}
                sums, seen = None, 0
                better = np.zeros(len(members), bool)
                for at, i in enumerate(members):
                    if not records[i].done:
                        parts = _of_model(means, at), _of_model(measured, at)
                        step = epoch * many.steps_per_epoch
                        own = self.configs[i]
                        dense = excess(parts[1]["active"], own.training.sparsity, own.architecture.n_h)
                        better[at] = records[i].look(epoch, *parts, step, config.patience, dense)
                stacked = many.keep(stacked, jnp.asarray(better))
                if len(running()) <= len(members) // 2 and epoch < config.epochs:
                    stacked, members = self._drop(stacked, members, records)
                    compiled = many.alone
            if progress is not None:
                progress(records, epoch)
            # at validations only: what the next one will be a mean over is not in the checkpoint
            due = time.monotonic() - saved > config.checkpoint_every or pressed.is_set()
            if looked and due and running() and self.checkpoint is not None:
                host = {"batch": batch, "members": members, "epoch": epoch}
                save_checkpoint(self.checkpoint, stacked, host | {"records": {i: vars(r) for i, r in records.items()}})
                saved = time.monotonic()
            if looked and pressed.is_set() and epoch < config.epochs and running():
                return False
        for i in members:
            records[i].done = True
        self._drop(stacked, members, records)
        if self.checkpoint is not None:
            self.checkpoint.unlink(missing_ok=True)
        return True

    def _drop(self, stacked: Stacked, members: list[int], records: dict[int, Record]):
        """Hands over the models that have stopped; (the rest, stacked; their numbers)."""
        best, fixed = jax.tree.map(np.asarray, (stacked.best, stacked.fixed))
        for at, i in enumerate(members):
            if records[i].done:
                model = eqx.combine(*(jax.tree.map(lambda w, at=at: w[at], t) for t in (best, fixed)))
                self.finish(i, unpad(model, self.small[i]), records[i])
        rest = [at for at, i in enumerate(members) if not records[i].done]
        if rest:
            chosen = np.asarray(rest)
            stacked = jax.tree.map(lambda w: jnp.asarray(np.asarray(w)[chosen]), stacked)
        return stacked, [members[at] for at in rest]

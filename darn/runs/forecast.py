"""What a training will take, told before it begins: a few steps are measured, everything else is counted."""

import dataclasses
import math
import os
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from darn.data import Rows, Splits
from darn.devices import using
from darn.errors import DarnError
from darn.model import Stack
from darn.runs.dataset import limit
from darn.runs.recipe import Recipe
from darn.runs.start import new_model
from darn.training import CHUNK, PART, DeviceRows, Hyper, Program, copied, copied_over, validation_samples

STEPS = 8  # of the measured program
CALLS, SECONDS = 5, 0.2  # of the measured program in a row, and how long a call takes
WITHIN, BETWEEN = 50.0, 5.0  # GB/s between the devices of a host, and between hosts, unless it is said


@dataclass(frozen=True)
class Forecast:
    """Bytes and seconds of a training; per device, where there are several."""

    parameters: int
    state_bytes: int  # weights, optimiser, averages, and the best weights so far; a device's part of shared ones
    data_bytes: int  # packed rows
    activation_bytes: int  # temporary arrays of a step, or of a validation if they are larger; gathered weights
    compiling_bytes: int  # at the peak while programs are compiled and tuned, where the device tells; instead of these
    memory_bytes: int  # state, rows, and the larger of the two
    largest_batch: int  # rows of a batch that fit into the memory, on all devices together
    available_bytes: int
    batch: int
    devices: int  # in all
    hosts: int
    step_seconds: float  # including the exchange of gradients
    exchange_seconds: float  # of gradients, and of weights that the devices share
    validation_seconds: float  # of one validation
    steps: int
    validations: int
    seconds: float  # of the whole run, without compilation


def forecast(
    recipe: Recipe,
    splits: Splits,
    *,
    devices: int = 1,
    hosts: int = 1,
    shard_weights: bool = False,
    bandwidth: float | None = None,
) -> Forecast:
    """Predicts a run of a recipe from a short measurement on one device of this machine.

    Args:
        recipe: what to train.
        splits: its data.
        devices: devices of each host.
        hosts: machines that train together.
        shard_weights: whether each device holds only its part of the weights and of the optimiser's state.
        bandwidth: GB/s between devices, the slowest link counts; None takes usual values.

    Returns:
        The prediction. A run that stops early takes less.
    """
    total, config = devices * hosts, recipe.training
    if devices < 1 or hosts < 1:
        raise DarnError(f"a run needs at least one device on one host, not {devices} on {hosts}")
    if bandwidth is not None and not 0 < bandwidth < math.inf:
        raise DarnError(f"the bandwidth is a positive number of GB/s, not {bandwidth:g}")
    splits = limit(splits, recipe)
    train, valid = splits.train, splits.valid
    batch = min(config.batch, len(train))
    if total > batch:
        raise DarnError(
            f"a batch of {batch} rows cannot be shared by {total} devices: use at most as many devices as a batch has "
            "rows"
        )
    model, own = new_model(recipe, splits), -(-batch // total)
    with using(1):
        dynamic = recipe.data.binarize == "dynamic" and train.grey
        per_epoch = max(len(train) // batch, 1)
        steps, most = per_epoch * config.epochs, per_epoch * config.validate_every
        before = _peak()
        one = _Measured(model, config, train, own, steps * total, dynamic)
        check = one.validation(valid, total)
        kept, gathered = one.shares(total) if shard_weights and total > 1 else (one.state, 0)
        times = one.step_times(most)
        compiling = _beyond(before)
        double = _Measured(model, config, train, 2 * own, steps * total, dynamic)
        times += one.step_times(most)  # again, some seconds later: what else the machine does comes and goes
        seconds = float(np.median(times))
    # The rows, and the order and keys of an epoch; or the chunks that are read of the rows.
    data = _held(train, 2 * CHUNK) + _held(valid, 2 * PART)
    fixed = kept + data // total + (0 if train.in_parts else 16 * len(train))
    slope = max((double.temporary - one.temporary) / own, 1.0)
    available = _available()
    fitting = max(int((available - fixed - gathered - (one.temporary - slope * own)) / slope), 0) * total
    temporary = max(one.temporary, check.temporary) + gathered
    exchange = 0.0
    if total > 1:
        speed = (bandwidth or (BETWEEN if hosts > 1 else WITHIN)) * 1e9
        exchange = (total - 1) / total * (2 * one.weights + gathered) / speed
    validations = -(-config.epochs // config.validate_every)
    return Forecast(
        parameters=one.parameters,
        state_bytes=kept,
        data_bytes=fixed - kept,
        activation_bytes=temporary,
        compiling_bytes=compiling,
        memory_bytes=fixed + max(temporary, compiling),
        largest_batch=min(fitting, len(train)),
        available_bytes=available,
        batch=batch,
        devices=total,
        hosts=hosts,
        step_seconds=seconds + exchange,
        exchange_seconds=exchange,
        validation_seconds=check.seconds,
        steps=steps,
        validations=validations,
        seconds=steps * (seconds + exchange) + validations * check.seconds,
    )


class _Measured:
    """A program of the run's own steps, over few rows."""

    def __init__(self, model: Stack, config: Any, train: Rows, batch: int, steps: int, dynamic: bool):
        config = dataclasses.replace(config, batch=batch, epochs=-(-steps // STEPS))  # a long run is optimised more
        some = train.take(np.arange(batch * STEPS) % len(train))
        self.model, self.config = model, config
        self.program = Program(model, config, len(some), dynamic=dynamic)
        self.hyper, self.rows = Hyper.of(config), DeviceRows.put(some)
        self._state = self.program.start(model, self.hyper)
        weights = jax.tree.leaves(self._state.params)
        self.parameters, self.weights = sum(w.size for w in weights), _bytes(weights)
        self.state = _bytes(jax.tree.leaves(self._state)) + self.weights
        self.epochs = self.program.epochs.lower(self._state, self.hyper, self.rows, 0, 1).compile()
        self.temporary = _temporary(self.epochs)
        self._score: Any = None
        self._kept = copied(self.program.kept(self._state))

    def shares(self, n: int) -> tuple[int, int]:
        """Bytes of the state on each of n devices that share the weights, and of those that a step gathers."""
        program, state = self.program, self._state
        specs = program.divided(self.model, self.config, n)

        def total(size, *of) -> int:
            return sum(jax.tree.leaves(jax.tree.map(size, *of)))

        def part(v, spec) -> int:
            return v.nbytes // n if spec else v.nbytes

        held = total(part, state, specs) + total(part, program.kept(state), program.kept(specs))
        gathered = [(state.params, specs.params), (state.log_sigma, specs.log_sigma)]
        return held, sum(total(lambda v, spec: v.nbytes if spec else 0, *of) for of in gathered)

    def _call(self, count: int, *, validated: bool = False) -> float:
        """Seconds of so many epochs; as in a run, a validation may follow them, which is not counted."""
        began = time.perf_counter()
        self._state, metrics = self.epochs(self._state, self.hyper, self.rows, 0, count)
        jax.device_get(metrics)  # as a run does
        took = time.perf_counter() - began
        if validated:
            jax.device_get(self._score(self._state, self.hyper))
            self._kept = copied_over(self._kept, self.program.kept(self._state))
        return took

    def step_times(self, most: int) -> list[float]:
        """Of one step, in several calls; like those of a run, they have at most so many steps, then validate."""
        self._call(1)
        once = self._call(1)
        to_validation = max(round(most / STEPS), 1)
        count = max(min(round(SECONDS / once), to_validation), 1)
        calls = CALLS * max(round(SECONDS / once / count), 1) if once < SECONDS else 1
        return [self._call(count, validated=count == to_validation) / (count * STEPS) for _ in range(calls)]

    def validation(self, valid: Rows, devices: int) -> "_Validation":
        """Of all validation rows on so many devices, from one device's part of those that are scored at once."""
        some = valid.take(slice(-(-500 // devices)))
        samples = validation_samples(self.program.model(self._state.params, self._state.fixed), len(valid))
        rows = DeviceRows.put(some)
        score = self.program.bound.lower(self._state, self.hyper, rows, n_samples=samples).compile()
        self._score = lambda state, hyper: score(state, hyper, rows)
        jax.block_until_ready(self._score(self._state, self.hyper))
        began = time.perf_counter()
        jax.block_until_ready(self._score(self._state, self.hyper))
        return _Validation((time.perf_counter() - began) * len(valid) / len(some) / devices, _temporary(score))


class _Validation(NamedTuple):
    """One validation."""

    seconds: float
    temporary: int  # bytes


def _temporary(program: Any) -> int:
    return int(getattr(program.memory_analysis(), "temp_size_in_bytes", 0))


def _held(rows: Any, most: int) -> int:
    """Bytes of rows in memory: all of them, or at most so many of a packed set, which comes in parts."""
    some = rows.take(slice(100))
    every = _bytes([some.values, some.context, some.weights]) * len(rows) // len(some)
    return min(every, most) if rows.in_parts else every


def _bytes(arrays: Any) -> int:
    return sum(a.nbytes for a in arrays if a is not None)


def _told() -> dict[str, int]:
    """What the device tells of its memory: nothing, if it is a CPU."""
    return jax.local_devices()[0].memory_stats() or {}


def _peak() -> int:
    return _told().get("peak_bytes_in_use", 0)


def _beyond(before: int) -> int:
    """Bytes that were in use at the device's peak beyond those in use now; 0 if the peak is still `before`."""
    return _peak() - _told()["bytes_in_use"] if _peak() > before else 0


def _available() -> int:
    """Bytes of a device's memory, or of this machine's on a CPU."""
    return int(_told().get("bytes_limit", 0)) or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

"""How rows come to the program that trains on them: all at once, or read from a packed set while it trains.

The order of an epoch is the same either way, and so are the weights. Grain, whose samplers and prefetching do similar
work, takes every record through Python, which costs more than a step of a small model does.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from darn.devices import ROWS, WHOLE, placed
from darn.training._hyper import Hyper
from darn.training._order import Order
from darn.training._rows import DeviceRows, relative
from darn.training._step import Program, TrainState

CHUNK = 128 << 20  # bytes of rows that are trained on at once, from all over a set; twice as much is in memory
PART = 32 << 20  # of validation rows, which follow each other


class Advance(NamedTuple):
    """What a call into the program has done."""

    state: TrainState
    metrics: dict[str, Any]  # means over the steps of the call, or of the epoch so far
    done: int  # in the unit that the feed counts in
    epochs: int  # that have ended
    steps: int


class MemoryFeed:
    """Rows on the devices; a call trains whole epochs."""

    step = 0  # steps of an epoch that has not ended
    partial: list | None = None  # sums of its metrics, as plain numbers

    def __init__(self, rows: DeviceRows, program: Program):
        self.rows, self.program = rows, program

    def advance(self, state: TrainState, hyper: Hyper, epoch: int, count: int, most: int) -> Advance:
        """Trains `count` epochs, at most `most`."""
        count = min(count, most)
        state, metrics = self.program.epochs(state, hyper, self.rows, epoch, count)
        return Advance(state, metrics, count, count, count * self.program.steps_per_epoch)

    def resume(self, step: int, partial: Sequence | None, shape: tuple[int, ...]) -> bool:
        """Continues after some steps of an epoch; False if that cannot be: a call ends with an epoch."""
        return step == 0 and partial is None

    def close(self) -> None:
        """Nothing: the rows stay."""


class StreamFeed:
    """Rows of a packed set, in chunks of some steps, each read while the last one is trained on.

    Args:
        rows: a `darn.data.PackedRows`.
        program: what trains on them.
        seed: of the order of the rows.
        mesh: the devices that share every batch; each process reads the rows of its own devices.
    """

    def __init__(self, rows: Any, program: Program, seed: int, mesh: Mesh | None):
        self.rows, self.program, self.mesh = rows, program, mesh
        most = max(CHUNK // (program.batch * rows.bytes_a_row), 1)
        # Evenly, since the last chunk of an epoch is filled up to the length of the others.
        self.steps = -(-program.steps_per_epoch // -(-program.steps_per_epoch // most))
        self.step = 0
        self._sums: dict[str, Any] | None = None  # of the metrics in this epoch
        rows.pack.check()
        self._mean_weight = mean_weight(rows)
        self._order = Order(seed, len(rows))
        self._ahead = Ahead(self._chunk)

    def advance(self, state: TrainState, hyper: Hyper, epoch: int, count: int, most: int) -> Advance:
        """Trains `count` steps, at most to the end of the chunk; `most` is how many epochs are still to come."""
        per_epoch = self.program.steps_per_epoch
        start = self.step // self.steps * self.steps
        end = min(start + self.steps, per_epoch)
        then = (epoch, end) if end < per_epoch else (epoch + 1, 0) if most > 1 else None
        rows = self._ahead.get((epoch, start), then)
        count = min(count, end - self.step)
        if self._sums is None:
            self._sums = placed(self.program.no_sums(state.step.shape), self.mesh, WHOLE)
        given = epoch, start, self.step - start, count
        state, self._sums = self.program.steps((state, self._sums), hyper, rows, *given)
        self.step += count
        metrics = jax.tree.map(lambda s: s / np.float32(self.step), jax.device_get(self._sums))  # waits for the device
        ended = self.step == per_epoch
        if ended:
            self.step, self._sums = 0, None
        return Advance(state, metrics, count, int(ended), count)

    def resume(self, step: int, partial: Sequence | None, shape: tuple[int, ...]) -> bool:
        """Continues after some steps of an epoch, with the sums of its metrics so far; False if that cannot be.

        `shape` is that of a sum: () for one model, (K,) for several.
        """
        leaves, structure = jax.tree.flatten(self.program.no_sums(shape))
        found = [np.asarray(v, np.float32) for v in partial or ()]
        if not 0 <= step < self.program.steps_per_epoch or (step == 0) != (partial is None):
            return False
        if found and [v.shape for v in found] != [v.shape for v in leaves]:
            return False
        self.step, self._sums = step, None
        if found:
            self._sums = placed(jax.tree.unflatten(structure, found), self.mesh, WHOLE)
        return True

    @property
    def partial(self) -> list | None:
        """Sums of the metrics in an epoch that has not ended, as plain numbers."""
        if self._sums is None:
            return None
        return [np.asarray(v, np.float64).tolist() for v in jax.device_get(jax.tree.leaves(self._sums))]

    def _chunk(self, which: tuple[int, int]) -> DeviceRows:
        """The rows of the chunk that begins with this step of this epoch."""
        epoch, start = which
        batch, each = self.program.batch, self.program.share.each(self.program.batch)
        # The last chunk of an epoch is as long as the others: all of them share one program.
        steps = np.minimum(start + np.arange(self.steps), self.program.steps_per_epoch - 1)

        def part(device: int) -> Any:
            """The rows of one device: its part of every batch."""
            places = np.minimum(device * each + np.arange(each), batch - 1)
            return self.rows.take(self._order.at(epoch, (steps[:, None] * batch + places).reshape(-1)))

        if self.mesh is None:
            return DeviceRows.put(part(0), mean_weight=self._mean_weight)
        return _divided(part, self.mesh, self._mean_weight)

    def close(self) -> None:
        """Forgets what was read ahead."""
        self._ahead.close()


def _divided(part: Callable[[int], Any], mesh: Mesh, mean: float | None) -> DeviceRows:
    """Rows of each device, those of other processes' devices left out."""
    local = [i for i, d in enumerate(mesh.devices.flat) if d.process_index == jax.process_index()]
    parts = {i: part(i) for i in local}
    one = parts[local[0]]
    length = len(one)

    def put(side: Callable[[Any], np.ndarray]) -> jax.Array:
        first = side(one)
        whole = (mesh.size * length, *first.shape[1:])
        of = lambda index: side(parts[(index[0].start or 0) // length])  # noqa: E731
        return jax.make_array_from_callback(whole, NamedSharding(mesh, ROWS), of)

    context = None if one.context is None else put(lambda rows: rows.context)
    weight = None if one.weights is None else put(lambda rows: relative(rows.weights, mean))
    return DeviceRows(put(lambda rows: rows.values), context, one.n, one.grey, weight, mesh.size * length, one.moves)


def mean_weight(rows: Any) -> float | None:
    """The mean of all row weights, if there are any."""
    weights = rows.weights
    return None if weights is None else float(np.mean(weights, dtype=np.float64))


class ValidStream:
    """Validation rows of a packed set, read in parts.

    Args:
        rows: a `darn.data.PackedRows`.
        mesh: the devices that the rows of a part are divided over.
    """

    def __init__(self, rows: Any, mesh: Mesh | None):
        self.rows, self.mesh = rows, mesh
        self.size = max(PART // rows.bytes_a_row, 1)
        rows.pack.check()
        self._mean_weight = mean_weight(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def parts(self) -> Iterator[tuple[int, DeviceRows]]:
        """(number of the first row, rows)."""
        ahead = Ahead(self._part)
        for start in range(0, len(self), self.size):
            then = start + self.size
            yield start, ahead.get(start, then if then < len(self) else None)
        ahead.close()

    def _part(self, start: int) -> DeviceRows:
        rows = self.rows.take(slice(start, start + self.size))
        return DeviceRows.put(rows, self.mesh, mean_weight=self._mean_weight)


class Ahead:
    """Makes things in a thread, the next one while the last one is in use."""

    def __init__(self, make: Callable[[Any], Any]):
        self._make = make
        self._pool: ThreadPoolExecutor | None = None
        self._held: tuple[Any, Any] = None, None
        self._coming: tuple[Any, Future | None] = None, None

    def get(self, key: Any, then: Any) -> Any:
        """What `make` makes of `key`; that of `then` is begun, unless it is None."""
        if self._held[0] != key:
            coming = self._coming[1] if self._coming[0] == key else None
            self._held = None, None  # before the next one arrives
            self._held = key, (coming or self._begin(key)).result()
        if self._coming[0] != then:
            self._coming = then, None if then is None else self._begin(then)
        return self._held[1]

    def _begin(self, key: Any) -> Future:
        self._pool = self._pool or ThreadPoolExecutor(1, "darn-rows")
        return self._pool.submit(copy_context().run, self._make, key)

    def close(self) -> None:
        """Ends the thread and forgets what it has made."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._pool, self._held, self._coming = None, (None, None), (None, None)

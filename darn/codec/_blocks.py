"""A block: rows coded onto one stack of bits, in groups.

The stack is empty at first, so the first rows use the most probable code, which takes no bits from the stack (and gives
none back). Every later group is as large as the bits on the stack allow. What rows hold besides their bits, such as
numbers within their cells, is pushed before all of them, and popped when their bits are known.
"""

from typing import Any, Protocol

import numpy as np

from darn.codec._ans import Ans, Empty
from darn.codec._bytes import MalformedError, Reader, varint
from darn.codec._stack import Lengths, StackCodec
from darn.codec._symbols import Reading, Writing
from darn.symbols import Coder

MOST_ROWS = 1024  # in a group
BLOCK_BITS = 1 << 23  # of rows, about: a block of MNIST is some ten thousand rows
LEAST_ROWS = 512  # if memory allows: a block costs about 40 bytes, too much for only 250 Atari frames


class Rest(Protocol):
    """What rows hold besides their bits."""

    def check(self, rows: int) -> bool:
        """Whether a block may have this many rows: no more than the writer puts into one."""
        ...

    def code(self, coder: Coder, x: np.ndarray, first: int, item: Any = None) -> Any:
        """Writes what `item` holds besides the bits x, from row `first` on; reads and returns it if there is none."""
        ...


def rows_per_block(n_x: int) -> int:
    return max(BLOCK_BITS // n_x, min(LEAST_ROWS, 4 * BLOCK_BITS // n_x), 1)


def encode(
    codec: StackCodec, x: np.ndarray, mask: np.ndarray | None = None, writing: Writing | None = None
) -> tuple[bytes, Lengths, int]:
    """Returns (the block's bytes, lengths by layer, rows without bits back).

    Args:
        codec: of the model.
        x: (rows, n_x).
        mask: see `StackCodec.push`.
        writing: what the rows hold besides; its length counts as one of x.
    """
    ans, lengths, groups, beside = Ans(), Lengths(codec.twin.n_layers), [], b""
    if writing is not None:
        beside, cost = writing.finish(ans)
        lengths.p[0] += cost
    done, size, first = 0, int(ans.size > 0) if codec.takes_bits else MOST_ROWS, 0
    states = codec.first_states(x)
    while done < len(x):
        size = min(size, len(x) - done, MOST_ROWS)
        here = slice(done, done + max(size, 1))
        rows, there = x[here], None if mask is None else mask[here]
        state = None if states is None else states.take(done, len(rows))
        kept = ans.copy() if size else ans
        try:
            if not size:
                found, need = codec.push(ans, rows, there, bits_back=False, state=state)[0], 0
                first += 1
            else:
                found, need = codec.push(ans, rows, there, state=state)
        except Empty:
            ans, size = kept, size // 2
            continue
        groups.append(2 * len(rows) + (size > 0))
        done += len(rows)
        lengths += found
        # As many rows as there are bits for, with a tenth to spare. The first row tells nothing yet: try one.
        size = max(ans.size * len(rows) * 10 // (need * 11), 1) if need > 0 else max(size, 1)
    return beside + _runs(groups) + ans.to_bytes(), lengths, first


def decode(
    codec: StackCodec,
    data: bytes,
    rows: int,
    mask: np.ndarray | None = None,
    rest: Rest | None = None,
    first: int = 0,
) -> Any:
    """The rows of a block, or what their `rest` makes of them, the first of which is row `first` of the file.

    Raises:
        MalformedError: if the bytes are not a block of this many rows.
    """
    if rest is not None and not rest.check(rows):
        raise MalformedError("there are more rows than a block may have")
    reader = Reader(data)
    beside = reader.take(reader.varint()) if rest is not None else b""
    groups = _groups(reader, rows)
    x = np.empty((rows, codec.twin.n_x), np.uint8)
    end = rows
    try:
        ans = Ans.from_bytes(reader.rest())
        for group in reversed(groups):
            size, bits_back = divmod(group, 2)
            there = None if mask is None else mask[end - size : end]
            x[end - size : end] = codec.pop(ans, size, there, bits_back=bool(bits_back))
            end -= size
        found = x
        if rest is not None:
            reading = Reading(ans, beside)
            found = rest.code(reading, x, first)
            reading.finish()
    except Empty as e:
        raise MalformedError("the data are too short") from e
    if not ans.empty:
        raise MalformedError("there are bits left over")
    return found


def _runs(groups: list[int]) -> bytes:
    """The groups, run-length encoded."""
    runs: list[list[int]] = []
    for g in groups:
        if runs and runs[-1][0] == g:
            runs[-1][1] += 1
        else:
            runs.append([g, 1])
    return varint(len(runs)) + b"".join(varint(g) + varint(count) for g, count in runs)


def _groups(reader: Reader, rows: int) -> list[int]:
    groups: list[int] = []
    total = 0
    for _ in range(reader.varint()):
        g, count = reader.varint(), reader.varint()
        total += (g // 2) * count
        if total > rows or not 1 <= g // 2 <= MOST_ROWS:
            raise MalformedError("the groups do not add up to the rows")
        groups += [g] * count
    if total != rows:
        raise MalformedError("the groups do not add up to the rows")
    return groups

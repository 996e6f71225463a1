"""A block: rows as one stack of bits, in groups that are coded side by side.

The first rows find an empty stack and are coded with the most probable code, which asks for no bits (at the cost of
the bits that would have come back). Every later group is as large as the bits on the stack allow.
"""

import numpy as np

from darn.codec._ans import Ans, Empty
from darn.codec._bytes import Damaged, Reader, varint
from darn.codec._stack import Lengths, StackCodec

MOST_ROWS = 1024  # in a group
BLOCK_BITS = 1 << 23  # of rows, about: a block of MNIST is some ten thousand rows
LEAST_ROWS = 512  # where memory allows: a block costs some 40 bytes, which 250 frames of a game would feel


def rows_per_block(n_x: int) -> int:
    return max(BLOCK_BITS // n_x, min(LEAST_ROWS, 4 * BLOCK_BITS // n_x), 1)


def encode(codec: StackCodec, x: np.ndarray, mask: np.ndarray | None = None) -> tuple[bytes, Lengths, int]:
    """(the block's bytes, lengths by layer, rows without bits back). `mask`: see `StackCodec.push`."""
    ans, lengths, groups = Ans(), Lengths(codec.twin.n_layers), []
    done, size, first = 0, MOST_ROWS if not codec.twin.n_layers else 0, 0
    while done < len(x):
        size = min(size, len(x) - done, MOST_ROWS)
        here = slice(done, done + max(size, 1))
        rows, there = x[here], None if mask is None else mask[here]
        kept = ans.copy() if size else ans
        try:
            if not size:
                found, need = codec.push(ans, rows, there, bits_back=False)[0], 0
                first += 1
            else:
                found, need = codec.push(ans, rows, there)
        except Empty:
            ans, size = kept, size // 2
            continue
        groups.append(2 * len(rows) + (size > 0))
        done += len(rows)
        lengths += found
        # As many rows as there are bits for, with a tenth to spare; after the first row we know nothing: try one.
        size = max(ans.size * len(rows) * 10 // (need * 11), 1) if need > 0 else max(size, 1)
    return _runs(groups) + ans.to_bytes(), lengths, first


def decode(codec: StackCodec, data: bytes, rows: int, mask: np.ndarray | None = None) -> np.ndarray:
    """The rows of a block; `Damaged` where the bytes are not those of a block of so many rows."""
    reader = Reader(data)
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
    except Empty as e:
        raise Damaged("the stack ran empty") from e
    if not ans.empty:
        raise Damaged("bits are left over")
    return x


def _runs(groups: list[int]) -> bytes:
    """The groups, equal ones told by their number."""
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
        if total > rows or not g // 2:
            break
        groups += [g] * count
    if total != rows:
        raise Damaged("the groups are not those of the rows")
    return groups

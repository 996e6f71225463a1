"""Mutators: bytes flipped, cut, doubled; values of JSON replaced by others that nobody expects."""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

Rng = np.random.Generator


def at(rng: Rng, data: bytes) -> int:
    """A position, half of the time near the beginning, where headers are."""
    return int(rng.integers(max(min(len(data), 64) if rng.random() < 0.5 else len(data), 1)))


def flip(rng: Rng, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(int(rng.choice([1, 1, 1, 2, 8]))):
        out[at(rng, data)] ^= 1 << int(rng.integers(8))
    return bytes(out)


def replace(rng: Rng, data: bytes) -> bytes:
    i, n = at(rng, data), int(rng.choice([1, 2, 4, 8]))
    largest = (1 << 8 * n) - 1
    value = int(rng.choice([0, 1, largest, largest >> 1, 127, 128], shuffle=False) if n < 8 else rng.choice([0, 1]))
    return data[:i] + value.to_bytes(n, str(rng.choice(["little", "big"]))) + data[i + n :]  # type: ignore[arg-type]


def cut(rng: Rng, data: bytes) -> bytes:
    return data[: at(rng, data)]


def drop(rng: Rng, data: bytes) -> bytes:
    i = at(rng, data)
    return data[:i] + data[i + int(rng.integers(1, 17)) :]


def double(rng: Rng, data: bytes) -> bytes:
    i, n = at(rng, data), int(rng.choice([1, 4, 16, 256, len(data)]))
    return data[: i + n] + data[i:]


def insert(rng: Rng, data: bytes) -> bytes:
    i = at(rng, data)
    return data[:i] + rng.bytes(int(rng.integers(1, 9))) + data[i:]


BYTES: tuple[Callable[[Rng, bytes], bytes], ...] = (flip, flip, replace, cut, drop, double, insert)


def damaged(rng: Rng, data: bytes) -> bytes:
    """The bytes after one to three mutations."""
    for _ in range(int(rng.choice([1, 1, 2, 3]))):
        data = BYTES[int(rng.integers(len(BYTES)))](rng, data) if data else rng.bytes(4)
    return data


def _deep(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


NASTY: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 3, 7, 2**31 - 1, 2**31, 2**63, 10**30, -(10**30), 10**400),
    *(0.5, -0.0, 1e-320, 1e308, -1e308, math.nan, math.inf, -math.inf),
    *("", "x", "0", "-1", "nan", "1e999", "\0", "\n", "../../x", "/dev/zero", "<script>", "é\u2028😀"),
    *("\ud800", "a" * 100_000),
    *([], {}, [[]], [0], [None], [-1, 2], ["x", "y"], {"x": 1}, {"": []}, [[1, 2], [3]], [0] * 1000, _deep(400)),
)


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """The paths of all values inside a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(p for k, v in inner for p in places(v, (*path, k)))]


def _changed(value: Any, path: tuple, change: Callable[[Any, Any], None]) -> Any:
    root = json.loads(json.dumps(value))
    node = root
    for part in path[:-1]:
        node = node[part]
    change(node, path[-1])
    return root


def nasty(rng: Rng, value: Any) -> Any:
    """The JSON value with one of those inside replaced, removed, repeated or renamed."""
    found = places(value)
    path = found[int(rng.integers(len(found)))]
    new = NASTY[int(rng.integers(len(NASTY)))]
    if not path:
        return new

    def change(node: Any, key: Any) -> None:
        kind = rng.integers(8)
        if kind == 0:
            del node[key]
        elif kind == 1:
            node[key] = [node[key]]
        elif kind == 2:
            node[key] = str(node[key])
        elif kind == 3 and isinstance(node, dict):
            node[f"{key}x"] = node.pop(key)
        elif kind == 3:
            node.insert(key, node[key])
        else:
            node[key] = new

    return _changed(value, path, change)

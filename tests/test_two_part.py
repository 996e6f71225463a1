"""Laws of a model inside a compressed file: few bytes, the same model again, and nothing from a stranger's bytes."""

import bz2
import lzma
import tracemalloc
import zlib

import jax
import numpy as np
import pytest
from helpers import randomised, same

from darn import codec
from darn.errors import DarnError
from darn.runs import two_part
from darn.zoo import build


def packed(name, k=3):
    model = build(two_part.candidates(8)[name], 8, key=jax.random.key(0))
    return two_part._rounded(randomised(model, 1), k)


@pytest.mark.parametrize("name", two_part.candidates(8))
def test_the_model_comes_back_on_its_grid(name):
    rounded, inside = packed(name)
    same(two_part.unpack(inside), rounded)
    weights = jax.tree.leaves(rounded)
    assert any(w.any() for w in weights)
    for w in weights:
        unit = 2.0 ** (5 if w.ndim == 1 else 3)
        np.testing.assert_array_equal(np.round(w * unit), w * unit)


def body(structure, head, rest=b""):
    return two_part.varint(len(structure)) + structure + head + rest


@pytest.mark.parametrize(("tag", "pack"), list(enumerate([zlib.compress, bz2.compress, lzma.compress])))
def test_bombs_take_no_memory(tag, pack, monkeypatch):
    monkeypatch.setattr(two_part, "MAX_MODEL", 16 << 20)  # LZMA's own tables take some 9 MB
    bomb = bytes([tag]) + pack(bytes(100 << 20))
    tracemalloc.start()
    with pytest.raises(DarnError, match="longer than"):
        two_part.unpack(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50 << 20


def test_malformed_bytes_are_refused():
    _, inside = packed("linear autoregression")
    rng = np.random.default_rng(0)
    content = codec.unpack(inside, two_part.MAX_MODEL)
    for _ in range(200):
        forged = bytearray(content)
        forged[rng.integers(len(forged))] ^= 1 << rng.integers(8)
        again = bytes([0]) + zlib.compress(bytes(forged[: rng.integers(1, 2 * len(forged))]))
        try:
            two_part.unpack(again)  # another weight is another model: there is no checksum here
        except DarnError as e:
            assert "\n" not in str(e)  # noqa: PT017
    for bad in (b"", b"\x07", inside[:-1], inside + b"\0", b"\x02" + lzma.compress(b"", format=lzma.FORMAT_ALONE)):
        with pytest.raises(DarnError, match="the model inside the file cannot be read"):
            two_part.unpack(bad)
    for inner in (body(b"{", b""), body(b"\xff", b""), body(b"5", b""), b"\xff" * 12):
        with pytest.raises(DarnError, match="the model inside the file cannot be read"):
            two_part.unpack(bytes([0]) + zlib.compress(inner))


def test_a_model_beyond_the_limit_is_not_written(monkeypatch):
    monkeypatch.setattr(two_part, "MAX_MODEL", 100)
    with pytest.raises(DarnError, match="at most 100 bytes"):
        packed("linear autoregression")

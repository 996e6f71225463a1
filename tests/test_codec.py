"""Laws of the codec: bit for bit, at the model's own length, the same bytes everywhere, and damage never unnoticed."""

import decimal
import io
import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import make_vectors
import numpy as np
import pytest
from helpers import GROUPS, MODELS, make_model, randomised

from darn import codec, zoo
from darn.codec import _blocks, _choice, _container
from darn.codec._ans import FREQUENCY, LENGTH, Ans, Empty
from darn.codec._bytes import MalformedError
from darn.codec._evaluate import BATCH, Evaluator
from darn.codec._stack import StackCodec
from darn.codec._twin import alone, dtype_of
from darn.config import Architecture
from darn.errors import DarnError
from darn.inference.sampling import sample
from darn.model_file import load_model, save_model
from darn.nn import CLIPPED, Integers
from darn.nn._tables import activation_table
from darn.runs.run import load
from darn.zoo import build

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `benchmarks` is not installed with the package
from benchmarks import codec as bench

# Not to be coded: no exact sums, or a context that the file would not hold.
WITHOUT = ("mixture", " | c")
CODED = [name for name in MODELS if not any(word in name for word in WITHOUT)]
REFUSED = [name for name in MODELS if name not in CODED]


def rows_of(n_x, rows, seed=0, density=0.5):
    return (np.random.default_rng(seed).random((rows, n_x)) < density).astype(np.uint8)


@lru_cache
def row_codec(name):
    return codec.RowCodec(make_model(name)[0], batch=16, workers=1)


def written(codec_, x, **options):
    file = io.BytesIO()
    found = codec_.write(file, [x], len(x), **options)
    return file.getvalue(), found


def read(codec_, data, **options):
    file = io.BytesIO(data)
    parts = [x for _, x in codec_.read(file, codec.read_head(file), **options)]
    return np.concatenate(parts) if parts else np.zeros((0, codec_.model.n_x), np.uint8)


# ---------------------------------------------------------------- tables and the stack of bits


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "elu"])
def test_tables_are_the_functions(name):
    """Against the same functions in decimal arithmetic of forty digits."""
    table = activation_table(name, 4, 3, 10)
    with decimal.localcontext(prec=40):
        for i, found in enumerate(table, -48):
            t = decimal.Decimal(i) / 16
            e = (-2 * t if name == "tanh" else -t).exp()
            exact = (1 - e) / (1 + e) if name == "tanh" else 1 / (1 + e)
            if name == "elu":
                exact = t if t > 0 else t.exp() - 1
            assert abs(decimal.Decimal(float(found)) * 1024 - exact * 1024) <= decimal.Decimal("0.5")


def test_probabilities_are_whole_numbers_and_never_0_or_1():
    total = 1 << 28
    assert FREQUENCY.min() == 1
    assert FREQUENCY.max() == total - 1
    assert (FREQUENCY.astype(np.int64) + FREQUENCY[::-1] == total).all()
    a = np.arange(-20 * 512, 20 * 512 + 1) / 512
    assert np.abs(FREQUENCY - np.clip(total / (1 + np.exp(-a)), 1, total - 1)).max() < 1


@pytest.mark.parametrize("scale", [0.1, 3.0, 50.0])
def test_a_stack_of_bits_gives_back_what_was_pushed(scale):
    rng = np.random.default_rng(0)
    ans = Ans()
    pushed, ideal = [], 0.0
    for n in (1, 0, 7, 3000, 50):
        a = (scale * rng.normal(size=n)).astype(np.float32)
        bits = (rng.random(n) < 1 / (1 + np.exp(-a.astype(np.float64)))).astype(np.uint8)
        ideal += ans.push(bits, a)
        pushed.append((bits, a))
    data = ans.to_bytes()
    assert len(data) * 8 < ideal * 1.0005 + 48  # the state at rest is 32 bits, and the last byte is not full
    ans = Ans.from_bytes(data)
    for bits, a in reversed(pushed):
        np.testing.assert_array_equal(ans.pop(a)[0], bits)
    assert ans.empty
    with pytest.raises(Empty):
        ans.pop(np.zeros(100, np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_linear_block_is_popped_as_its_units_one_by_one(dtype):
    rng = np.random.default_rng(0)
    n, rows = 9, 40
    W = np.tril(np.rint(64 * rng.normal(size=(n, n))), -1).astype(dtype) / 64
    a = (np.rint(256 * rng.normal(size=(n, rows))) / 256).astype(dtype)
    together, alone = (Ans.from_bytes(bytes(range(7, 250))) for _ in range(2))
    bits, cost = together.pop_linear(a.copy(), W)
    paid = 0.0
    for j in range(n):
        own, more = alone.pop(a[j] + W[j] @ bits.astype(dtype))
        np.testing.assert_array_equal(own, bits[j])
        paid += more
    assert together.to_bytes() == alone.to_bytes()
    assert cost == pytest.approx(paid)
    assert 0 < bits.mean() < 1
    with pytest.raises(Empty):
        Ans().pop_linear(a, W)


def test_small_groups_of_a_large_model_have_a_program_of_their_own():
    small, large = (zoo.darn(64, n_h=n, key=jax.random.key(0)) for n in (8, 800))
    assert [Evaluator(codec.twin(m))._size(rows) for m in (small, large) for rows in (1, 64, 65)] == [
        *(BATCH,) * 3,
        64,
        64,
        BATCH,
    ]


def test_an_accelerator_has_one_size_of_program(monkeypatch):
    """It compiles for longer than it takes to pad a small group or a small file."""
    model = build(Architecture(visible="nade", n_nade=(700,)), 700, key=jax.random.key(0))
    row, walked = codec.RowCodec(model), range(1, 1025, 100)
    assert len({row._stack_codec(rows).evaluate._walk_size(rows) for rows in walked}) > 1
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    sizes = [(own._size(rows), own._walk_size(rows)) for rows in walked for own in [row._stack_codec(rows).evaluate]]
    assert len(set(sizes)) == 1


def test_improbable_bits_cost_what_they_cost():
    ans = Ans()
    assert ans.push(np.ones(10, np.uint8), np.full(10, -1e6)) == pytest.approx(280)
    assert LENGTH.max() == 28


# ---------------------------------------------------------------- the integer twin


@pytest.mark.parametrize("name", CODED)
def test_the_twin_is_exact_and_near(name):
    """Parallel and stepwise logits agree to the last bit, in any batch and in wider floats; near the float model's."""
    model = make_model(name)[0]
    twin = codec.twin(model)
    assert dtype_of(twin) == "float32"
    assert [type(p.layer) for p in (*twin.decoder, *twin.encoder)] == [
        type(p.layer) for p in (*model.decoder, *model.encoder)
    ]
    x = rows_of(model.n_x, 7)
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda w: jnp.asarray(w, jnp.float64) if eqx.is_inexact_array(w) else w, twin)
    here, wider = Evaluator(twin, 8), Evaluator(wide, 4)
    h, rows = StackCodec(twin, 8).most_probable(x), np.arange(len(x))
    sides = [("p", l, (x, *h)[l], None, h) for l in range(len(twin.decoder))]
    sides += [("q", k, h[k], x, h[:k]) for k in range(twin.n_layers)]
    for side, l, y, below, above in sides:
        K, each = here.layer(side, l).n_orders, []
        for k in (None,) if K == 1 else range(K):
            each.append(here.logits(side, l, y, below, above, k))
            np.testing.assert_array_equal(each[-1], wider.logits(side, l, y, below, above, k))
        orders = None if K == 1 else np.resize(np.arange(K), len(x))  # another for every row
        walked, units_of = np.full(each[0].shape, np.nan), lambda units, K=K: units if K == 1 else (units, rows)

        def choose(units, a, walked=walked, y=y, units_of=units_of):
            walked[units_of(units)] = a
            return y.T[units_of(units)]

        np.testing.assert_array_equal(here.walk(side, l, len(x), below, above, choose, orders), y)
        np.testing.assert_array_equal(walked, np.stack(each)[0 if orders is None else orders, :, rows].T)
    assert abs(codec.rounding_cost(model, twin, x)) < 0.05


def test_every_partial_sum_is_within_the_floats_integers():
    """The bound is on the sum of absolute products: check it in Python's integers for the widest sum there is."""
    model = build(Architecture(n_h=(40,), n_d=(50,), visible="linear"), 60, key=jax.random.key(0))
    model = randomised(model, 3, scale=2.0)
    layer = codec.twin(model).decoder[0].layer
    U, W, b = (np.asarray(v, np.float64) for v in (layer.U.W, layer.W.weights(), layer.b))
    finest = next(k for k in range(30) if (np.ldexp(np.concatenate([U, W], 1), k) % 1 == 0).all())
    unit = finest + 8  # tanh in steps of 2^-8
    sums = np.ldexp(np.abs(U).sum(1) + np.abs(W).sum(1) + np.abs(b), unit)
    assert 2**22 < sums.max() < 2**24


def test_sums_over_activations_of_two_digits_are_exact():
    how = Integers.of(CLIPPED[0])
    rng = np.random.default_rng(0)
    W = how.weights(jnp.asarray(rng.normal(size=(300, 7)), jnp.float32), CLIPPED[0])
    x = np.rint(rng.uniform(-1, rng.choice([1, 1024], (20, 300))) * 32) / 32
    exact = x @ np.asarray(W, np.float64)
    exact = np.where(np.abs(exact) < 2000, exact, np.nan)
    found = np.where(np.isnan(exact), np.nan, how.product(jnp.asarray(x, jnp.float32), W))
    assert np.isfinite(exact).any()
    np.testing.assert_allclose(found, exact, atol=2**-10)


def test_large_weights_take_float64_and_larger_ones_are_refused():
    arch = Architecture(n_h=(3,), n_d=(4,), activation="relu")
    small = build(arch, 5, key=jax.random.key(0))
    large = randomised(small, 1, scale=3e3)
    twin = codec.twin(large)
    assert {dtype_of(alone(twin, *place)) for place in (("p", 0), ("q", 0))} == {"float64"}
    x = rows_of(5, 20)
    np.testing.assert_array_equal(codec.decompress(large, codec.compress(large, x, batch=4)), x)
    with pytest.raises(DarnError, match="too large"):
        codec.twin(randomised(small, 1, scale=1e12))
    broken = eqx.tree_at(lambda m: m.decoder[0].layer.b, small, jnp.full(5, jnp.nan))
    with pytest.raises(DarnError, match="not finite"):
        codec.twin(broken)


def test_each_conditional_has_the_smallest_float_type_that_is_exact():
    """And programs of its own: large weights of the encoder leave the decoder's in float32, bit for bit."""
    arch = Architecture(n_h=(3,), n_d=(4,), activation="relu")
    small = randomised(build(arch, 5, key=jax.random.key(0)), 0)
    mixed = eqx.tree_at(lambda m: m.encoder, small, randomised(small.encoder, 1, scale=3e3))
    places = ("p", 0), ("p", 1), ("q", 0)
    twin = codec.twin(mixed)
    assert [dtype_of(alone(twin, *place)) for place in places] == ["float32", "float32", "float64"]
    assert [Evaluator(twin).logits("p", 0, rows_of(5, 3), None, (rows_of(3, 3),)).dtype] == ["float32"]
    own, others = (jax.tree.leaves(codec.twin(m).decoder) for m in (small, mixed))
    jax.tree.map(np.testing.assert_array_equal, own, others)
    x = rows_of(5, 20)
    np.testing.assert_array_equal(codec.decompress(mixed, codec.compress(mixed, x, batch=4)), x)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_coded_is_refused(name):
    with pytest.raises(DarnError, match="cannot compress|the codec is for"):
        codec.compress(make_model(name)[0], rows_of(MODELS[name][1], 3))


# ---------------------------------------------------------------- round trips


@pytest.mark.parametrize("name", CODED)
def test_round_trip_at_the_models_length(name):
    row = row_codec(name)
    n = row.model.n_x
    inputs = [rows_of(n, rows, seed=rows) for rows in (0, 1, 2, 33)]
    inputs += [np.zeros((20, n), np.uint8), np.ones((20, n), np.uint8)]
    for x in inputs:
        data, found = written(row, x)
        np.testing.assert_array_equal(read(row, data), x)
        assert len(data) == found.size
        assert found.overhead / 8 < 75 + found.first  # head, end, groups and the stack's first word
        kept = codec.inspect(data)
        assert (kept.rows, kept.size, kept.first) == (found.rows, found.size, found.first)
        assert kept.ideal == pytest.approx(found.ideal, abs=len(found.p) + len(found.q))


@pytest.mark.parametrize("visible", ["factorial", "linear", "nade"])
def test_one_hot_groups_cost_their_choices_alone(visible):
    arch = Architecture(n_h=(3,), n_d=(4,), visible=visible, n_nade=(4,))
    model = randomised(build(arch, 8, groups=GROUPS, key=jax.random.key(0)), 5)
    twin, x = codec.twin(model), sample(model, 40, seed=0).x
    h = StackCodec(twin, 8).most_probable(x)
    a, walked = Evaluator(twin, 8).logits("p", 0, x, None, h), []

    def choose(units, a):
        walked.append(a)
        return x.T[units]

    Evaluator(twin, 8).walk("p", 0, len(x), None, h, choose)
    np.testing.assert_array_equal(np.stack(walked), a)
    assert abs(codec.rounding_cost(model, twin, x)) < 0.05  # so that what a group settles costs next to nothing
    row = codec.RowCodec(model, batch=16, workers=1)
    for rows in (x, x[:0], rows_of(8, 5)):  # the last are no rows of the table, and come back all the same
        np.testing.assert_array_equal(read(row, written(row, rows)[0]), rows)


def test_the_posterior_of_orders_is_that_of_their_lengths():
    """In integers: none is 0, they sum to one, and they are 2^-length but for the last digits."""
    rng = np.random.default_rng(0)
    for K in (2, 3, 8):
        bits = 900 + rng.normal(size=(K, 200)) * rng.choice([0.1, 3, 300], 200)[None]
        found = _choice.posterior(np.rint(bits * 2**24).astype(np.int64))
        assert found.min() >= 1
        assert (found.sum(axis=1, dtype=np.int64) == 1 << 28).all()
        exact = np.exp2(bits.min(axis=0) - bits)
        np.testing.assert_allclose(found.T / 2**28, exact / exact.sum(axis=0), atol=1e-6)
        assert (_choice.uniform(5, K).sum(axis=1, dtype=np.int64) == 1 << 28).all()


def test_orders_cost_what_their_mixture_costs():
    """Bits back: K orders take -log2 of the mean of their probabilities, and no more."""
    row = row_codec("eonade")
    x = rows_of(row.model.n_x, 300)
    data, found = written(row, x)
    lengths = Evaluator(row.twin, 64).lengths("p", 0, x, None, ())[1]
    assert found.first == 1
    assert found.ideal == pytest.approx(_choice.in_bits(lengths).sum(), abs=3)
    assert len(data) * 8 < found.ideal + 8 * 75


@pytest.mark.parametrize("name", ["1 factorial", "2", "2 skip", "3", "eonade", "1 eonade", "on a grid, conv, 1"])
def test_bits_back_come_back(name):
    """Net length is log q - log p along the path, and what was on the stack before is there again after."""
    codec_ = StackCodec(row_codec(name).twin, 16)
    ans = Ans()
    rng = np.random.default_rng(1)
    a = rng.normal(size=2000).astype(np.float32)
    ans.push((rng.random(2000) < 0.5).astype(np.uint8), a)
    before, held = ans.size, ans.to_bytes()
    x = rows_of(codec_.twin.n_x, 16)
    found, need = codec_.push(ans, x)
    assert 0 < need <= before
    assert ans.size - before == pytest.approx(found.p.sum() - found.q.sum(), abs=2)
    np.testing.assert_array_equal(codec_.pop(ans, 16), x)
    assert ans.to_bytes() == held


def test_nearest_parents_need_fewer_bits_at_the_start():
    """Bit-Swap: with layers that take turns, less has to be on the stack than all of q takes."""
    codec_ = StackCodec(row_codec("3").twin, 16)
    ans = Ans()
    ans.push(rows_of(4000, 1)[0], np.zeros(4000))
    found, need = codec_.push(ans, rows_of(codec_.twin.n_x, 16))
    assert need < found.q.sum() - 1


def test_the_length_is_the_expected_description_length():
    """Over every row of a small model, many times: the bits spent are those of the bound, by enumeration."""
    from helpers import states, table

    name = "1 factorial"
    log_p, log_q = table(name)
    bound = (np.exp(log_q) * (log_q - log_p)).sum(axis=1).mean()
    x = np.tile(states(MODELS[name][1]).astype(np.uint8), (60, 1))
    x = x[np.random.default_rng(0).permutation(len(x))]
    row = codec.RowCodec(make_model(name)[0], workers=1)
    data, found = written(row, x)
    assert found.ideal * np.log(2) / len(x) == pytest.approx(bound, rel=0.02)
    assert len(data) * 8 * np.log(2) / len(x) < bound * 1.02 + 75 * 8 * np.log(2) / len(x)


def test_masked_units_cost_nothing_and_come_back_as_zeros():
    for name in ("1 factorial", "1 linear, linear encoder", "nade"):
        row = row_codec(name)
        x = rows_of(row.model.n_x, 30)
        there = rows_of(row.model.n_x, 30, seed=1).astype(bool)
        x = x * there
        data, found = written(row, x, mask=lambda i, j, there=there: there[i:j])
        np.testing.assert_array_equal(read(row, data, mask=lambda i, j, there=there: there[i:j]), x)
        none, _ = written(row, x, mask=lambda i, j, x=x: np.zeros(x[i:j].shape, bool))
        assert len(none) < len(data)
        assert found.p[0] < written(row, x)[1].p[0]


def test_round_trips_over_random_stacks():
    """Some of the benchmark's ten thousand: any layers, depths, widths, weights; rows none, constant, improbable."""
    found = bench.trips(SimpleNamespace(first=1000, stacks=3, sets=30))
    assert found["round_trips"] == 90


# ---------------------------------------------------------------- the same bytes everywhere


def small_blocks(monkeypatch, rows):
    monkeypatch.setattr(_blocks, "rows_per_block", lambda n_x: rows)


def test_one_order_that_is_the_plain_one():
    model = make_model("eonade")[0]
    layer = model.decoder[0].layer
    plain = eqx.tree_at(lambda m: m.decoder[0].layer.orders, model, jnp.arange(layer.n)[None])
    x = rows_of(plain.n_x, 9)
    np.testing.assert_array_equal(codec.decompress(plain, codec.compress(plain, x)), x)


def test_blocks_are_large_enough_for_their_cost_and_small_enough_for_memory():
    assert _blocks.rows_per_block(784) > 10_000
    assert _blocks.rows_per_block(209 * 159) == 512
    for n_x in (1, 784, 33_231, 10**6, 10**9):
        assert 1 <= _blocks.rows_per_block(n_x) <= max(2**25 // n_x, 1)


@pytest.mark.parametrize("name", ["1 linear, linear encoder", "1 nade, nade encoder"])
def test_no_batch_size_or_number_of_workers_changes_a_byte(name, monkeypatch):
    model = make_model(name)[0]
    small_blocks(monkeypatch, 40)
    x = rows_of(model.n_x, 100)
    data = {codec.compress(model, x, batch=b, workers=w) for b, w in ((1, 1), (7, 2), (1000, 3))}
    assert len(data) == 1
    for b, w in ((1, 2), (7, 1), (1000, 1)):
        np.testing.assert_array_equal(codec.decompress(model, *data, batch=b, workers=w), x)


@lru_cache
def wide_model():
    model = build(Architecture(n_h=(40,), n_d=(30,), visible="linear"), 50, key=jax.random.key(1))
    return randomised(model, 2, scale=0.3)


SCRIPT = """
import sys, hashlib, numpy as np
from darn import codec, zoo
from darn.model_file import load_model
model = load_model(sys.argv[1])[0]
x = np.load(sys.argv[2])
data = codec.compress(model, x, batch=16)
assert (codec.decompress(model, open(sys.argv[3], "rb").read(), batch=16) == x).all()
print(hashlib.sha256(data).hexdigest())
"""


def test_no_thread_kernel_or_vector_unit_changes_a_byte(tmp_path):
    """Other processes with one thread, an old BLAS kernel, no SIMD in NumPy and no optimisation in XLA."""
    import hashlib

    save_model(tmp_path / "m.safetensors", wide_model())
    x = rows_of(50, 64, density=0.3)
    np.save(tmp_path / "x.npy", x)
    data = codec.compress(wide_model(), x)
    (tmp_path / "x.drn").write_bytes(data)
    settings = [
        {"OPENBLAS_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": "AVX2 AVX512F FMA3"},
        {"XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2 --xla_backend_optimization_level=1", "OPENBLAS_CORETYPE": "Haswell"},
    ]
    names = [str(tmp_path / f) for f in ("m.safetensors", "x.npy", "x.drn")]
    runs = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SCRIPT, *names],
            env=os.environ | extra,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for extra in settings
    ]
    for run in runs:
        out, err = run.communicate(timeout=300)
        assert out.strip() == hashlib.sha256(data).hexdigest(), err


# ---------------------------------------------------------------- damage


@lru_cache
def a_file():
    """(codec, rows, bytes) of a small file of three blocks."""
    row = row_codec("1 factorial")
    x = rows_of(row.model.n_x, 30)
    with pytest.MonkeyPatch.context() as patch:
        small_blocks(patch, 10)
        return row, x, written(row, x)[0]


def test_every_damaged_byte_is_noticed():
    row, x, data = a_file()
    confined = 0
    for i in range(len(data)):
        for change in (0x01, 0x80):
            bad = data[:i] + bytes([data[i] ^ change]) + data[i + 1 :]
            with pytest.raises(DarnError) as e:
                read(row, bad)
            assert len(str(e.value)) < 300
            try:
                kept = read(row, bad, keep_going=True)
            except DarnError:
                continue
            confined += 1  # the other blocks are whole
            assert any(np.array_equal(kept, np.delete(x, np.s_[j : j + 10], axis=0)) for j in (0, 10, 20))
    assert confined > len(data) / 2  # most of the bytes are in blocks


def test_every_truncation_and_anything_after_the_end_is_noticed():
    row, _, data = a_file()
    for i in range(len(data)):
        with pytest.raises(DarnError):
            read(row, data[:i])
    for more in (b"\0", data[1:]):  # but the same file once more is a second member
        with pytest.raises(DarnError, match="after the end"):
            codec.read_members(io.BytesIO(data + more))
    assert len(codec.read_members(io.BytesIO(data + data))) == 2


def test_a_block_that_lies_is_noticed():
    """Bytes that pass the CRC but are not a block of these rows: popped to its end, the stack is not empty."""
    row, x, _ = a_file()
    codec_ = StackCodec(row.twin, 16)
    block = _blocks.encode(codec_, x)[0]
    for i in range(len(block)):
        bad = block[:i] + bytes([block[i] ^ 0x10]) + block[i + 1 :]
        try:
            found = _blocks.decode(codec_, bad, len(x))
        except MalformedError:
            continue
        assert not np.array_equal(found, x)
    for rows in (len(x) - 1, len(x) + 1):
        with pytest.raises(MalformedError, match="groups"):
            _blocks.decode(codec_, block, rows)


def test_another_model_a_newer_version_and_another_file_are_refused():
    row, x, data = a_file()
    other = eqx.tree_at(lambda m: m.decoder[0].layer.b, row.model, row.model.decoder[0].layer.b + 0.01)
    with pytest.raises(DarnError, match="another model"):
        codec.decompress(other, data)
    newer = data[:4] + bytes([_container.VERSION + 1]) + data[5:]
    with pytest.raises(DarnError, match="upgrade darn"):
        codec.decompress(row.model, newer)
    with pytest.raises(DarnError, match="not a compressed darn file"):
        codec.decompress(row.model, b"PK" + data)
    for bad, why in ((x[:, :-1], "shape"), (x + 1, "0 and 1"), (x[0], "shape")):
        with pytest.raises(DarnError, match=why):
            codec.compress(row.model, bad)


def test_a_saved_model_makes_the_same_bytes(tmp_path):
    row, x, _ = a_file()
    save_model(tmp_path / "m.safetensors", row.model)
    again = load_model(tmp_path / "m.safetensors")[0]
    assert codec.compress(again, x, batch=16) == codec.compress(row.model, x, batch=16)


@pytest.mark.gpu
@pytest.mark.parametrize("name", make_vectors.COMPRESSED)
def test_files_of_the_promised_format_stay_readable(name):
    """What was written once is read, and written again bit for bit, by every later version."""
    made = (make_vectors.FOLDER / f"{name}.drn").read_bytes()
    model, _ = load_model(make_vectors.FOLDER / f"{name}.safetensors")
    x = make_vectors.rows_to_compress(name, json.loads((make_vectors.FOLDER / "expected.json").read_text()))
    np.testing.assert_array_equal(codec.decompress(model, made), x)
    assert codec.compress(model, x) == made


def test_a_gpus_file_is_this_machines_file():
    """A thousand MNIST rows compressed on an H200: they come back here, and compressed here make the same bytes."""
    root = Path(__file__).parent.parent
    made = (root / "results" / "bench" / "codec-h200.drn").read_bytes()
    run = load(root / "results" / "models" / "mnist-500.safetensors")
    if not (Path(os.environ.get("DARN_DATA", "")) / "binarized_mnist.npz").is_file():
        pytest.skip("DARN_DATA has no binarized_mnist")
    x = run.rows().take(slice(0, 1000)).unpack()
    assert np.array_equal(codec.decompress(run.model, made), x)
    assert codec.compress(run.model, x) == made
